// Publishes a position ten times a second, and promises one at least every 200 ms.
#include "message.hpp"

#include <cmath>
#include <iostream>
#include <thread>

int main() {
    thalweg::Node node("publisher");
    auto publisher = node.publisher<Position>(topic).deadline(deadline).open();
    std::cout << publisher.name() << " publishes " << topic << "; stop with Ctrl-C" << std::endl;
    for (int step = 0;; ++step) {
        publisher.publish({std::cos(step / 10.0), std::sin(step / 10.0)});
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}
