// Sets the priority of a live channel: `set_priority /talker /listener "class=high sched=fifo:30"`.
#include <thalweg.hpp>

#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 4) {
        std::cerr << "usage: set_priority PUBLISHER SUBSCRIBER SETTINGS" << std::endl;
        return 2;
    }
    thalweg::Node node("administrator");
    std::cout << node.set(argv[1], argv[2], argv[3]);
    return 0;
} catch (const thalweg::Error& error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
