// Messages of the tests: the same types as in tests/cpp.rs.
#ifndef THALWEG_TESTS_MESSAGES_HPP
#define THALWEG_TESTS_MESSAGES_HPP

#include <thalweg/fields.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace robot {

// Memory and encoding are the same.
struct Vector3 {
    double x;
    double y;
    double z;
};
THALWEG_STRUCT(Vector3, x, y, z)

// So here, but only at a multiple of 8, which its first field does not ask for.
struct Stamp {
    std::uint32_t sequence;
    std::int32_t zone;
    double time;
};
THALWEG_STRUCT(Stamp, sequence, zone, time)

// Padding within and behind.
struct Padded {
    std::uint8_t kind;
    double value;
    bool valid;
};
THALWEG_STRUCT(Padded, kind, value, valid)

// The order of the bytes is another one than in memory.
struct Turned {
    float last;
    float first;
};
THALWEG_STRUCT(Turned, first, last)

struct Everything {
    bool flag;
    std::int8_t tiny;
    std::int16_t small;
    std::string text;
    std::uint16_t port;
    std::vector<std::uint8_t> bytes;
    std::vector<Stamp> stamps;
    std::array<double, 3> position;
    std::vector<std::string> names;
    Padded padded;
    std::vector<Padded> many;
    std::array<Vector3, 2> vectors;
    float ratio;
    std::uint64_t wide;
    std::vector<bool> flags;
    Turned turned;
    std::vector<double> numbers;
    std::int64_t last;
};
THALWEG_STRUCT(Everything, flag, tiny, small, text, port, bytes, stamps, position, names, padded, many, vectors, ratio, wide, flags, turned, numbers,
               last)

struct Nested {
    std::vector<std::vector<std::vector<std::int16_t>>> rows;
    std::array<std::array<float, 2>, 3> matrix;
};
THALWEG_STRUCT(Nested, rows, matrix)

// Contains itself: messages can be nested without end.
struct Tree {
    std::uint8_t leaf;
    std::vector<Tree> branches;
};
THALWEG_STRUCT(Tree, leaf, branches)

// As many fields as the list can have.
struct Wide {
    std::uint8_t a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15;
    std::uint16_t b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15;
};
THALWEG_STRUCT(Wide, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13,
               b14, b15)

struct Sum {
    std::int64_t left;
    std::int64_t right;
};
THALWEG_STRUCT(Sum, left, right)

struct Total {
    std::int64_t total;
    std::string text;
};
THALWEG_STRUCT(Total, total, text)

}  // namespace robot

#endif
