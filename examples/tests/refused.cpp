// A subscriber of another type than the talker's: prints why they do not match.
#include <thalweg.hpp>

#include <chrono>
#include <iostream>
#include <string>

int main() {
    thalweg::Node node("refused");
    auto subscriber = node.subscriber<thalweg::Bytes>("/position").open();
    while (const auto event = node.wait_event(std::chrono::seconds(20))) {
        if (event->find("do not match: type") == std::string::npos) continue;
        std::cout << *event << std::endl;
        return 0;
    }
    return 1;
}
