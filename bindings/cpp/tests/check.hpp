// Assertions of the test programs.
#ifndef THALWEG_TESTS_CHECK_HPP
#define THALWEG_TESTS_CHECK_HPP

#include <thalweg/error.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);  \
            std::_Exit(1);                                                                      \
        }                                                                                       \
    } while (false)

// The text of the error with which a call fails.
template <class F>
std::string fails(thalweg::Status status, F&& call) {
    try {
        call();
    } catch (const thalweg::Error& error) {
        if (error.status() == status) return error.what();
        std::fprintf(stderr, "another error was expected: %s\n", error.what());
        std::_Exit(1);
    }
    std::fprintf(stderr, "an error was expected\n");
    std::_Exit(1);
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

#endif
