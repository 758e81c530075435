// Prints positions with their latency; `listener COUNT` ends after so many. See talker.cpp.
#include <thalweg.hpp>

#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <string>

struct Position {
    std::string robot;
    double x;
    double y;
};
THALWEG_STRUCT(Position, robot, x, y)

int main(int argc, char** argv) {
    long left = argc > 1 ? std::atol(argv[1]) : -1;
    thalweg::Node node("listener");
    auto subscriber = node.subscriber<Position>("/position").named("/listener").open();
    std::cout << std::fixed << std::setprecision(2);
    for (auto& at : subscriber.wait_for(thalweg::forever)) {
        std::cout << "sample " << at.info().seq << ": " << at->robot << " at (" << at->x << ", " << at->y << ") after "
                  << at.info().latency_us() << " us" << std::endl;
        if (--left == 0) break;
    }
}
