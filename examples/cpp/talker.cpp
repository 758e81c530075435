// Publishes the position of a robot ten times a second. See listener.cpp.
#include <thalweg.hpp>

#include <chrono>
#include <iomanip>
#include <iostream>
#include <string>
#include <thread>

struct Position {
    std::string robot;
    double x;
    double y;
};
THALWEG_STRUCT(Position, robot, x, y)

int main() {
    thalweg::Node node("talker");
    auto publisher = node.publisher<Position>("/position").named("/talker").open();
    std::cout << std::fixed << std::setprecision(2);
    for (int step = 0;; ++step) {
        const Position at = {"Zoë", step / 10.0, step / 10.0 * (step / 10.0)};
        const auto published = publisher.publish(at);
        std::cout << "sample " << published.seq << ": " << at.robot << " at (" << at.x << ", " << at.y << ") sent on " << published.sent
                  << " channels" << std::endl;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}
