// Reads ten images in the shared memory in which they were written. See image_publisher.cpp.
#include <thalweg.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <numeric>

int main() {
    thalweg::Node node("viewer");
    auto images = node.subscriber<thalweg::Bytes>("/image").carriers("shm").open();
    for (int left = 10; left > 0; --left) {
        const auto image = images.wait(std::chrono::seconds(20));
        if (!image) return 1;
        const std::size_t sum = std::accumulate((*image)->begin(), (*image)->end(), std::size_t{0});
        std::cout << "sample " << image->info().seq << ": " << (*image)->size() << " bytes, sum " << sum << " after "
                  << image->info().latency_us() << " us" << std::endl;
    }
}
