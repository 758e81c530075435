// Prints positions with their latency, and says so if none comes in time. A publisher that promises less is not matched.
#include "message.hpp"

#include <iostream>

int main() {
    thalweg::Node node("subscriber");
    auto subscriber = node.subscriber<Position>(topic).deadline(deadline).open();
    for (;;) {
        if (const auto position = subscriber.wait(deadline)) {
            const Position& value = **position;
            std::cout << "(" << value.x << ", " << value.y << ") after " << position->info().latency_us() << " us" << std::endl;
        } else {
            std::cout << "no position within " << deadline.count() << " ms" << std::endl;
        }
    }
}
