// Asks a server for 6 / 3, or another division: `client LEFT RIGHT`. See server.cpp.
#include <thalweg.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>

struct Division {
    std::int64_t left;
    std::int64_t right;
};
THALWEG_STRUCT(Division, left, right)

struct Quotient {
    std::int64_t value;
};
THALWEG_STRUCT(Quotient, value)

int main(int argc, char** argv) try {
    const Division asked = {argc > 2 ? std::atol(argv[1]) : 6, argc > 2 ? std::atol(argv[2]) : 3};
    thalweg::Node node("client");
    auto client = node.client<Division, Quotient>("/divide");
    const auto quotient = client.call(asked, std::chrono::seconds(5));
    std::cout << asked.left << " / " << asked.right << " = " << quotient.value << std::endl;
    return 0;
} catch (const thalweg::Error& error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
