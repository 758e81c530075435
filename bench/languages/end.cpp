// One end of a measurement by `thalweg bench`: `end ROLE KEY=VALUE ...`, with the same work as the ends in Rust.
//
// It prints "ready" when its channels are there. The active roles (ping, publish) wait for a line then, and print "measuring" and their
// processor time behind the warm-up; the passive ones (pong, subscribe) end when their input does. Last come a line of JSON with counts, and
// the nanoseconds of each measured message (64 bit, little-endian).

#include <thalweg.hpp>

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Bytes = thalweg::Span<const std::uint8_t>;
using Publisher = thalweg::Publisher<thalweg::Bytes>;
using Subscriber = thalweg::Subscriber<thalweg::Bytes>;

constexpr auto patience = 20s;
constexpr auto connects = 30s;
constexpr auto period = 1ms;
constexpr const char* ping_topic = "/bench/ping";
constexpr const char* pong_topic = "/bench/pong";
constexpr const char* samples_topic = "/bench/samples";
// Queues of the stream keep a second of it, so that an end without a processor for a while loses nothing. Those of round trips are as by default.
constexpr std::uint32_t stream_depth = 1000, trip_depth = 16;
// The latency of a sample that never came.
constexpr std::uint64_t missed = UINT64_MAX;

std::uint64_t now() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

// The terms of the measurement, from the arguments.
struct Terms {
    explicit Terms(const std::map<std::string, std::string>& stated)
        : realm(stated.at("realm")),
          carrier(stated.at("carrier")),
          payload(stated.at("payload")),
          size(std::stoull(stated.at("size"))),
          subscribers(std::stoull(stated.at("subscribers"))),
          warmup(std::stoull(stated.at("warmup"))),
          count(std::stoull(stated.at("count"))) {}

    std::uint64_t all() const { return warmup + count; }

    std::string realm, carrier, payload;
    std::size_t size, subscribers;
    std::uint64_t warmup, count;
};

// Counts messages in memory of this process alone. Such a message is copied on its way between publisher and subscriber.
class Copies {
public:
    void look(const void* memory) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory);
        if (!is_shared(address)) read_mappings();
        looked_ += 1;
        count_ += is_shared(address) ? 0 : 1;
    }

    std::string text() const { return looked_ == 0 ? "null" : std::to_string(count_); }

private:
    bool is_shared(std::uintptr_t address) const {
        for (const auto& [start, end] : shared_) {
            if (start <= address && address < end) return true;
        }
        return false;
    }

    void read_mappings() {
        shared_.clear();
        std::ifstream lines("/proc/self/maps");
        for (std::string line; std::getline(lines, line);) {
            std::istringstream parts(line);
            std::uintptr_t start = 0, end = 0;
            char dash = 0;
            std::string rights;
            parts >> std::hex >> start >> dash >> end >> rights;
            if (!rights.empty() && rights.back() == 's') shared_.emplace_back(start, end);
        }
    }

    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> shared_;
    std::uint64_t count_ = 0, looked_ = 0;
};

std::uint64_t word(const std::uint8_t* bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof(word));
    return word;
}

// Four sums at once, as the compiler of the ends in Rust makes them of one: the row compares libraries, not compilers. With one sum g++ 12 takes
// twice as long for 1 MiB.
std::uint64_t checksum(const std::uint8_t* bytes, std::size_t size) {
    std::uint64_t a = 0, b = 0, c = 0, d = 0;
    std::size_t at = 0;
    for (; at + 32 <= size; at += 32) {
        a += word(bytes + at);
        b += word(bytes + at + 8);
        c += word(bytes + at + 16);
        d += word(bytes + at + 24);
    }
    std::uint8_t rest[32] = {};
    std::memcpy(rest, bytes + at, size - at);
    return a + b + c + d + word(rest) + word(rest + 8) + word(rest + 16) + word(rest + 24);
}

// The checksum of `size` bytes that are all this one.
std::uint64_t expected(std::size_t size, std::uint8_t byte) {
    std::uint8_t word[8], rest[8] = {};
    std::memset(word, byte, sizeof(word));
    std::memset(rest, byte, size % 8);
    return checksum(word, sizeof(word)) * (size / 8) + checksum(rest, sizeof(rest));
}

// The work on each message: `send` publishes number n, `receive` looks at it. Memory is looked up in the warm-up only.
class Work {
public:
    explicit Work(const Terms& terms)
        : own_(terms.size),
          sink_(terms.size),
          warmup_(terms.warmup),
          copied_(terms.payload == "copied"),
          checked_(terms.payload == "checked"),
          copies_out_(copied_ && terms.carrier == "shm") {}

    void send(Publisher& publisher, std::uint64_t number) {
        if (copied_) {
            publisher.publish(own_);
            return;
        }
        auto loan = publisher.loan(own_.size());
        if (number < warmup_) copies_.look(loan.begin());
        if (checked_) std::memset(loan.begin(), static_cast<std::uint8_t>(number), own_.size());
        loan.publish();
    }

    void receive(Bytes message, std::uint64_t number) {
        if (message.size() != own_.size()) {
            throw std::runtime_error("a message has " + std::to_string(message.size()) + " bytes, not " + std::to_string(own_.size()));
        }
        if (copies_out_) std::memcpy(sink_.data(), message.data(), message.size());
        if (!copied_ && number < warmup_) copies_.look(message.data());
        if (checked_ && checksum(message.data(), message.size()) != expected(message.size(), static_cast<std::uint8_t>(number))) {
            throw std::runtime_error("message " + std::to_string(number) + " has another checksum than it should");
        }
    }

    std::string copies() const { return copies_.text(); }

private:
    std::vector<std::uint8_t> own_, sink_;
    std::uint64_t warmup_;
    bool copied_, checked_, copies_out_;
    Copies copies_;
};

void say(const std::string& line) {
    std::cout << line << std::endl;
}

// Of this process, in nanoseconds.
std::uint64_t processor_time() {
    timespec time = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return std::uint64_t(time.tv_sec) * 1'000'000'000 + std::uint64_t(time.tv_nsec);
}

void begin() {
    say("ready");
    std::string line;
    if (!std::getline(std::cin, line)) throw std::runtime_error("the measuring process has gone");
}

void until_input_ends() {
    while (std::cin.get() != EOF) {
    }
}

template <class Port>
void connected(const Port& port, std::size_t count = 1) {
    if (!port.wait_connected(count, connects)) throw std::runtime_error(port.name() + " has too few channels after 30 s");
}

void report(const std::vector<std::uint64_t>& times, const std::string& copies) {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    say("{\"copies\":" + copies + ",\"rss_kib\":" + std::to_string(usage.ru_maxrss) + ",\"times\":" + std::to_string(times.size()) +
        ",\"cpu_ns\":" + std::to_string(processor_time()) + "}");
    for (const std::uint64_t time : times) {
        std::uint8_t bytes[8];
        for (int at = 0; at < 8; ++at) bytes[at] = static_cast<std::uint8_t>(time >> (8 * at));
        std::cout.write(reinterpret_cast<const char*>(bytes), sizeof(bytes));
    }
    std::cout.flush();
}

// The program ends with the reason when a callback fails.
[[noreturn]] void give_up(const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(1);
}

Publisher publisher(const thalweg::Node& node, const Terms& terms, const char* topic, std::uint32_t depth = trip_depth) {
    auto builder = node.publisher<thalweg::Bytes>(topic);
    builder.carriers(terms.carrier).max_message(static_cast<std::uint32_t>(terms.size)).queue(thalweg::Queue::keep_last(depth));
    return builder.open();
}

template <class F>
Subscriber subscriber(const thalweg::Node& node, const Terms& terms, const char* topic, F callback, std::uint32_t depth = trip_depth) {
    auto builder = node.subscriber<thalweg::Bytes>(topic);
    builder.carriers(terms.carrier).max_message(static_cast<std::uint32_t>(terms.size)).queue(thalweg::Queue::keep_last(depth));
    builder.on_error(give_up);
    return builder.callback(std::move(callback));
}

// The callback makes the next trip. The lock is the main thread's for the first one only.
class Trips {
public:
    Trips(Publisher out, const Terms& terms) : out_(std::move(out)), work_(terms), warmup_(terms.warmup), all_(terms.all()), times_(terms.count) {}

    void begin() {
        connected(out_);
        ::begin();
        const std::lock_guard<std::mutex> held(lock_);
        set_out();
    }

    void take(Bytes message) {
        const std::lock_guard<std::mutex> held(lock_);
        if (number_ == all_) return;
        work_.receive(message, number_);
        const std::uint64_t took = now() - start_;
        if (number_ >= warmup_) times_[number_ - warmup_] = took;
        number_ += 1;
        if (number_ == all_) return ended_.notify_all();
        set_out();
    }

    // Waits for the last trip, as long as there are further ones.
    void wait() {
        std::unique_lock<std::mutex> held(lock_);
        while (number_ != all_) {
            const std::uint64_t before = number_;
            ended_.wait_for(held, patience, [&] { return number_ == all_; });
            if (number_ == before) throw std::runtime_error("no echo of message " + std::to_string(before) + " within 20 s");
        }
        report(times_, work_.copies());
    }

private:
    void set_out() {
        if (number_ == warmup_) say("measuring " + std::to_string(processor_time()));
        start_ = now();
        work_.send(out_, number_);
    }

    Publisher out_;
    Work work_;
    std::uint64_t warmup_, all_, number_ = 0, start_ = 0;
    std::vector<std::uint64_t> times_;
    std::mutex lock_;
    std::condition_variable ended_;
};

void ping(const thalweg::Node& node, const Terms& terms) {
    Trips trips(publisher(node, terms, ping_topic), terms);
    auto echoes = subscriber(node, terms, pong_topic, [&](const auto& sample) { trips.take(*sample); });
    connected(echoes);
    trips.begin();
    trips.wait();
    echoes.close();
}

void pong(const thalweg::Node& node, const Terms& terms) {
    Publisher out = publisher(node, terms, pong_topic);
    Work work(terms);
    std::uint64_t number = 0;
    auto messages = subscriber(node, terms, ping_topic, [&](const auto& sample) {
        work.receive(*sample, number);
        work.send(out, number);
        number += 1;
    });
    connected(out);
    connected(messages);
    say("ready");
    until_input_ends();
    messages.close();
    report({}, work.copies());
}

void publish(const thalweg::Node& node, const Terms& terms) {
    Publisher out = publisher(node, terms, samples_topic, stream_depth);
    std::vector<std::uint8_t> message(terms.size);
    connected(out, terms.subscribers);
    begin();
    auto due = Clock::now();
    for (std::uint64_t number = 0; number < terms.all(); ++number) {
        if (number == terms.warmup) say("measuring " + std::to_string(processor_time()));
        due += period;
        std::this_thread::sleep_until(due);
        const std::uint64_t stamp = now();
        std::memcpy(message.data(), &stamp, 8);
        std::memcpy(message.data() + 8, &number, 8);
        const auto published = out.publish(message);
        if (published.sent + published.queued != terms.subscribers) {
            throw std::runtime_error("sample " + std::to_string(number) + " was not taken for all subscribers");
        }
    }
    report({}, "null");
}

void subscribe(const thalweg::Node& node, const Terms& terms) {
    std::vector<std::uint64_t> times(terms.count, missed);
    std::mutex lock;
    std::condition_variable came;
    bool last = false;
    const auto note = [&](const auto& sample) {
        const std::uint64_t arrived = now();
        std::uint64_t stamp = 0, number = 0;
        std::memcpy(&stamp, sample->data(), 8);
        std::memcpy(&number, sample->data() + 8, 8);
        if (number >= terms.warmup && number < terms.all()) times[number - terms.warmup] = arrived - stamp;
        if (number + 1 < terms.all()) return;
        const std::lock_guard<std::mutex> held(lock);
        last = true;
        came.notify_all();
    };
    auto samples = subscriber(node, terms, samples_topic, note, stream_depth);
    connected(samples);
    say("ready");
    until_input_ends();
    {
        // The publisher is done before its last samples are here.
        std::unique_lock<std::mutex> held(lock);
        came.wait_for(held, patience, [&] { return last; });
    }
    samples.close();
    report(times, "null");
}

}  // namespace

int main(int argc, char** argv) try {
    const std::map<std::string, void (*)(const thalweg::Node&, const Terms&)> roles = {
        {"ping", ping}, {"pong", pong}, {"publish", publish}, {"subscribe", subscribe}};
    std::map<std::string, std::string> stated;
    for (int at = 2; at < argc; ++at) {
        const std::string word = argv[at];
        const auto end = word.find('=');
        if (end != std::string::npos) stated[word.substr(0, end)] = word.substr(end + 1);
    }
    const auto role = argc > 1 ? roles.find(argv[1]) : roles.end();
    if (role == roles.end()) throw std::runtime_error("roles: ping, pong, publish, subscribe");
    const Terms terms(stated);
    thalweg::NodeOptions options;
    options.realm = terms.realm;
    // Several subscribers are in one realm, where names are unique.
    const thalweg::Node node(role->first + "-" + std::to_string(::getpid()), options);
    role->second(node, terms);
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
