// Publishes images over shared memory, each written where its subscribers read it: nothing is copied. See image_subscriber.cpp.
#include <thalweg.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <thread>

int main() {
    constexpr std::size_t bytes = 640 * 480 * 3;
    thalweg::Node node("camera");
    auto publisher = node.publisher<thalweg::Bytes>("/image").carriers("shm").open();
    for (std::uint8_t number = 0;; ++number) {
        auto image = publisher.loan(bytes);
        std::fill(image.begin(), image.end(), number);
        const auto published = image.publish();
        std::cout << "sample " << published.seq << ": " << bytes << " bytes, sum " << bytes * number << " sent on " << published.sent
                  << " channels" << std::endl;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}
