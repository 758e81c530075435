// Publishes as part of a session that a broker has admitted: `join_session SESSION /TOPIC`.
#include <thalweg.hpp>

#include <cstdint>
#include <iostream>
#include <vector>

int main(int argc, char** argv) try {
    if (argc != 3) {
        std::cerr << "usage: join_session SESSION /TOPIC" << std::endl;
        return 2;
    }
    thalweg::Node node("joiner");
    auto publisher = node.publisher<thalweg::Bytes>(argv[2]).session(argv[1]).open();
    publisher.publish(std::vector<std::uint8_t>{1, 2, 3});
    std::cout << publisher.name() << " publishes as part of " << argv[1] << std::endl;
    return 0;
} catch (const thalweg::Error& error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
