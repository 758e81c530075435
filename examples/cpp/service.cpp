// A server that adds, and a client. Both are in this program; a client in another language gets the same answers.
#include <thalweg.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>

struct Sum {
    std::int64_t left;
    std::int64_t right;
};
THALWEG_STRUCT(Sum, left, right)

struct Total {
    std::int64_t total;
};
THALWEG_STRUCT(Total, total)

int main() {
    thalweg::Node there("calculator"), here("asker");
    auto server = there.server<Sum, Total>("/add", [](const Sum& sum) { return Total{sum.left + sum.right}; });
    auto client = here.client<Sum, Total>("/add");
    const auto answer = client.call({2, 3}, std::chrono::seconds(5));
    std::cout << "2 + 3 = " << answer.total << std::endl;
}
