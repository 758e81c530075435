// The message of both programs, its topic, and the promise.
#pragma once

#include <thalweg.hpp>

#include <chrono>

inline constexpr const char* topic = "/position";
// The longest time between two positions: promised by the publisher, expected by the subscriber.
inline constexpr std::chrono::milliseconds deadline(200);

// A position in metres.
struct Position {
    double x;
    double y;
};
THALWEG_STRUCT(Position, x, y)
