// Prints ten positions (or the number given as argument) with their latency. See talker.cpp.
#include <thalweg.hpp>

#include <cstdlib>
#include <iostream>

struct Position {
    double x;
    double y;
};
THALWEG_STRUCT(Position, x, y)

int main(int argc, char** argv) {
    int left = argc > 1 ? std::atoi(argv[1]) : 10;
    thalweg::Node node("listener");
    auto subscriber = node.subscriber<Position>("/position").named("/listener").open();
    for (auto& position : subscriber.wait_for(thalweg::forever)) {
        std::cout << "sample " << position.info().seq << ": (" << position->x << ", " << position->y << ") after "
                  << position.info().latency_us() << " us" << std::endl;
        if (--left <= 0) break;
    }
}
