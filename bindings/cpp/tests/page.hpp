// What the pieces of C++ in the pages leave out.
#include <thalweg.hpp>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace std::chrono_literals;

struct Position {
    double x;
    double y;
};
THALWEG_STRUCT(Position, x, y)

struct Sum {
    std::int64_t left;
    std::int64_t right;
};
THALWEG_STRUCT(Sum, left, right)

struct String {
    std::string data;
};
THALWEG_STRUCT(String, data)
