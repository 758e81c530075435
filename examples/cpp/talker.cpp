// Publishes a position ten times a second. See listener.cpp.
#include <thalweg.hpp>

#include <chrono>
#include <cmath>
#include <iostream>
#include <thread>

struct Position {
    double x;
    double y;
};
THALWEG_STRUCT(Position, x, y)

int main() {
    thalweg::Node node("talker");
    auto publisher = node.publisher<Position>("/position").named("/talker").open();
    std::cout << publisher.name() << " publishes; stop with Ctrl-C" << std::endl;
    for (int step = 0;; ++step) {
        const double angle = step / 10.0;
        const auto published = publisher.publish({std::cos(angle), std::sin(angle)});
        std::cout << "sample " << published.seq << ": sent on " << published.sent << " channels, waits on " << published.queued << std::endl;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}
