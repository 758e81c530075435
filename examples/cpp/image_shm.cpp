// Images over shared memory: each is written where the subscriber reads it, so that its size costs nothing. Both ends are in this program.
#include <thalweg.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>

int main() {
    using namespace std::chrono_literals;
    thalweg::Node camera("camera"), viewer("viewer");
    auto publisher = camera.publisher<thalweg::Bytes>("/image").carriers("shm").open();
    auto images = viewer.subscriber<thalweg::Bytes>("/image").carriers("shm").open();
    if (!publisher.wait_connected(1, 5s) || !images.wait_connected(1, 5s)) return 1;
    for (int number = 1; number <= 3; ++number) {
        auto loan = publisher.loan(1920 * 1080 * 3);
        std::fill(loan.begin(), loan.end(), static_cast<std::uint8_t>(number));
        loan.publish();
        const auto image = images.wait(5s);
        if (!image) return 1;
        std::cout << "image " << +(**image)[0] << ": " << (*image)->size() << " bytes after " << image->info().latency_us() << " us" << std::endl;
    }
}
