// Divides for its clients. See client.cpp.
#include <thalweg.hpp>

#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <unistd.h>

struct Division {
    std::int64_t left;
    std::int64_t right;
};
THALWEG_STRUCT(Division, left, right)

struct Quotient {
    std::int64_t value;
};
THALWEG_STRUCT(Quotient, value)

int main() {
    thalweg::Node node("server");
    const auto server = node.server<Division, Quotient>("/divide", [](const Division& asked) {
        if (asked.right == 0) throw std::domain_error("a division by zero");   // the client's time passes
        return Quotient{asked.left / asked.right};
    });
    std::cout << "serves /divide" << std::endl;
    pause();
}
