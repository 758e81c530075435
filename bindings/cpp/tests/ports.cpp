// One end of the tests with Rust at the other one (tests/cpp.rs): `ports SCENARIO REALM`. It ends when its input does.

#include "messages.hpp"

#include <thalweg.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr auto longest = 60s;

void until_input_ends() {
    std::cout << "ready" << std::endl;
    while (std::cin.get() != EOF) {
    }
}

// Gives back the values of a topic as they came.
template <class T>
class Echo {
public:
    Echo(const thalweg::Node& node, const std::string& topic)
        : answers_(node.publisher<T>(topic + "/back").priority(thalweg::Class::high).queue(thalweg::Queue::keep_all(64)).open()),
          questions_(node.subscriber<T>(topic).callback([this](const auto& question) {
              answers_.wait_connected(1, longest);
              answers_.publish(*question);
          })) {}

private:
    thalweg::Publisher<T> answers_;
    thalweg::Subscriber<T> questions_;
};

void echo(const thalweg::Node& node) {
    const Echo<robot::Everything> everything(node, "/everything");
    const Echo<robot::Nested> nested(node, "/nested");
    const Echo<std::string> text(node, "/text");
    const Echo<std::vector<double>> numbers(node, "/numbers");
    until_input_ends();
}

// Gives back each image inverted, in place; a single byte is the end.
void image(const thalweg::Node& node) {
    auto inverted = node.publisher<thalweg::Bytes>("/inverted").carriers("shm").open();
    auto images = node.subscriber<thalweg::Bytes>("/images").carriers("shm").open();
    std::cout << "ready" << std::endl;
    for (auto& image : images.wait_for(longest)) {
        if (image->size() == 1) break;
        inverted.wait_connected(1, longest);
        auto loan = inverted.loan(image->size());
        std::transform(image->begin(), image->end(), loan.begin(), [](std::uint8_t pixel) { return static_cast<std::uint8_t>(~pixel); });
        loan.publish();
    }
    until_input_ends();
}

// Gives back each plain value with its elements turned round.
void plain(const thalweg::Node& node) {
    using Three = thalweg::Plain<std::array<double, 3>>;
    auto turned = node.publisher<Three>("/turned").open();
    const auto values = node.subscriber<Three>("/values").callback([&](const auto& value) {
        turned.wait_connected(1, longest);
        auto loan = turned.loan();
        std::reverse_copy(value->begin(), value->end(), loan->begin());
        loan.publish();
    });
    until_input_ends();
}

// Adds for a client in Rust.
void server(const thalweg::Node& node) {
    const auto server = node.server<robot::Sum, robot::Total>("/add", [](const robot::Sum& sum) {
        if (sum.right == 0) throw std::runtime_error("nothing to add");
        return robot::Total{sum.left + sum.right, std::to_string(sum.left) + " + " + std::to_string(sum.right)};
    });
    until_input_ends();
}

// Asks a server in Rust.
void client(const thalweg::Node& node) {
    auto client = node.client<robot::Sum, robot::Total>("/add");
    for (std::int64_t n = 1; n <= 3; ++n) {
        const robot::Total total = client.call({n, 10 * n}, longest);
        std::cout << total.text << " = " << total.total << std::endl;
    }
}

struct String {
    std::string data;
};
THALWEG_STRUCT(String, data)

// A type of ROS 2, typed and encoded.
void ros(const thalweg::Node& node) {
    auto chatter = node.publisher<String>("/chatter").ros("std_msgs/msg/String", "string data").transient_local(2).open();
    chatter.publish({"hello"});
    auto encoded = node.publisher<thalweg::Encoded>("/encoded").ros("std_msgs/msg/String", "string data").transient_local(1).open();
    encoded.publish(thalweg::cdr::encode(String{"bytes"}));
    until_input_ends();
}

}  // namespace

int main(int argc, char** argv) try {
    const std::map<std::string, std::function<void(const thalweg::Node&)>> scenarios = {
        {"echo", echo}, {"image", image}, {"plain", plain}, {"server", server}, {"client", client}, {"ros", ros}};
    if (argc != 3 || scenarios.count(argv[1]) == 0) return 2;
    thalweg::NodeOptions options;
    options.realm = argv[2];
    const thalweg::Node node("cpp", options);
    scenarios.at(argv[1])(node);
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
