// What takes no other program: errors, callbacks that throw, ports that are closed while somebody waits, plain values, the graph.
// `alone REALM`.

#include "check.hpp"
#include "messages.hpp"

#include <thalweg.hpp>

#include <poll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#if __cplusplus >= 202002L
#include <span>
#endif

using namespace std::chrono_literals;
using robot::Padded;
using robot::Stamp;
using thalweg::Status;

namespace {

constexpr auto longest = 60s;

// Texts that callbacks tell, and a thread that waits for them.
class Told {
public:
    void tell(std::string text) {
        const std::lock_guard<std::mutex> lock(mutex_);
        all_.push_back(std::move(text));
        news_.notify_all();
    }
    std::vector<std::string> wait(std::size_t count) {
        std::unique_lock<std::mutex> lock(mutex_);
        CHECK(news_.wait_for(lock, longest, [&] { return all_.size() >= count; }));
        return all_;
    }

private:
    std::mutex mutex_;
    std::condition_variable news_;
    std::vector<std::string> all_;
};

void errors_say_whose_fault_it_is(const thalweg::Node& node) {
    const auto bad = [&] { node.publisher<Padded>("/a//b").open(); };
    CHECK(!fails(Status::invalid, bad).empty());
    const auto first = node.publisher<Padded>("/taken").named("/same").open();
    CHECK(contains(fails(Status::refused, [&] { node.publisher<Padded>("/taken").named("/same").open(); }), "/same"));
    CHECK(contains(fails(Status::invalid, [&] { node.publisher<thalweg::Encoded>("/x").open(); }), "type()"));
    CHECK(contains(fails(Status::invalid, [&] { node.publisher<robot::Tree>("/x").open(); }), "contains itself"));
    CHECK(!fails(Status::invalid, [&] { thalweg::Type::ros("no name", "string data"); }).empty());
    const auto other = [&] { node.publisher<Padded>("/x").ros("std_msgs/msg/String", "string data").open(); };
    CHECK(contains(fails(Status::invalid, other), "not that of its values"));
    CHECK(!fails(Status::not_found, [&] { node.set("/nobody", "/none", "class=high"); }).empty());

    auto small = node.publisher<thalweg::Bytes>("/small").max_message(100).open();
    CHECK(!fails(Status::too_large, [&] { small.publish(std::vector<std::uint8_t>(101)); }).empty());
    auto client = node.client<robot::Sum, robot::Total>("/nobody");
    CHECK(!fails(Status::timeout, [&] { client.call({1, 2}, 1ms); }).empty());

    const thalweg::Error error(Status::refused, "the cause; a remedy; another one");
    CHECK(error.cause() == "the cause" && error.remedy() == "a remedy; another one");
    CHECK(thalweg::Error(Status::closed, "closed").remedy().empty());
}

void texts_that_are_not_utf8_stay_here(const thalweg::Node& node) {
    auto publisher = node.publisher<robot::Total>("/texts").open();
    CHECK(contains(fails(Status::invalid, [&] { publisher.publish({1, "a\xff"}); }), "byte 255 at place 1"));
}

void samples_have_value_and_stamps(const thalweg::Node& node) {
    auto publisher = node.publisher<Padded>("/stamps").named("/from").open();
    auto subscriber = node.subscriber<Padded>("/stamps").open();
    CHECK(publisher.wait_connected(1, longest) && subscriber.wait_connected(1, longest));
    CHECK(!subscriber.take() && !subscriber.wait(1ms));
    CHECK(publisher.publish({7, 0.5, true}).seq == 1);
    auto sample = subscriber.wait(longest);
    CHECK(sample && (*sample)->kind == 7 && (**sample).value == 0.5 && (*sample)->valid);
    const auto kept = std::move(*sample);
    const auto info = kept.info();
    CHECK(info.seq == 1 && info.publisher == "/from" && info.type == "Padded" && !info.historical && !info.disposed);
    CHECK(info.latency && *info.latency == info.received - info.source && info.latency_us() >= 0.0);
    CHECK(kept.data().size() == thalweg::cdr::size(*kept));
}

void ranges_end_when_nothing_comes(const thalweg::Node& node) {
    auto publisher = node.publisher<Stamp>("/range").open();
    auto subscriber = node.subscriber<Stamp>("/range").open();
    CHECK(publisher.wait_connected(1, longest) && subscriber.wait_connected(1, longest));
    for (std::uint32_t n = 0; n < 5; ++n) publisher.publish({n, 0, 0.0});
    std::uint32_t expected = 0;
    for (auto& stamp : subscriber.wait_for(longest)) {
        CHECK(stamp->sequence == expected);
        if (++expected == 5) break;
    }
    for (auto& stamp : subscriber.wait_for(0ms)) CHECK(stamp->sequence > 5);
}

void descriptors_become_readable(const thalweg::Node& node) {
    auto publisher = node.publisher<Stamp>("/descriptor").open();
    auto subscriber = node.subscriber<Stamp>("/descriptor").open();
    CHECK(publisher.wait_connected(1, longest) && subscriber.wait_connected(1, longest));
    const int descriptor = subscriber.descriptor();
    CHECK(!subscriber.take());
    std::thread later([&] { publisher.publish({1, 2, 3.0}); });
    pollfd waited = {descriptor, POLLIN, 0};
    CHECK(poll(&waited, 1, 60000) == 1);
    later.join();
    auto sample = subscriber.wait(longest);
    CHECK(sample && (*sample)->zone == 2);
}

void what_a_callback_throws_is_reported(const thalweg::Node& node) {
    Told seen, wrong;
    auto publisher = node.publisher<robot::Total>("/throws").open();
    const auto subscriber = node.subscriber<robot::Total>("/throws")
                                .on_error([&](const std::exception& thrown) { wrong.tell(thrown.what()); })
                                .callback([&](const auto& total) {
                                    if (total->total == 1) throw std::runtime_error("the first is refused");
                                    if (total->total == 2) throw 2;
                                    seen.tell(total->text);
                                });
    CHECK(publisher.wait_connected(1, longest));
    for (std::int64_t n = 1; n <= 3; ++n) publisher.publish({n, "three"});
    CHECK(seen.wait(1).at(0) == "three");
    const auto told = wrong.wait(2);
    CHECK(told.at(0) == "the first is refused" && contains(told.at(1), "no std::exception"));

    // Without a handler it stands on standard error, where tests/cpp.rs looks for it; nor may the handler throw.
    Told last;
    auto other = node.publisher<robot::Total>("/unhandled").open();
    const auto unhandled = node.subscriber<robot::Total>("/unhandled").callback([&](const auto& total) {
        if (total->total == 1) throw std::runtime_error("nobody handles this");
        last.tell(total->text);
    });
    const auto worse = node.subscriber<robot::Total>("/unhandled")
                           .on_error([](const std::exception&) { throw std::runtime_error("worse"); })
                           .callback([&](const auto& total) {
                               if (total->total == 1) throw std::runtime_error("bad");
                               last.tell(total->text);
                           });
    CHECK(other.wait_connected(2, longest));
    other.publish({1, "one"});
    other.publish({2, "two"});
    last.wait(2);
}

void messages_that_are_no_value_are_errors(const thalweg::Node& node) {
    Told seen, wrong;
    auto publisher = node.publisher<thalweg::Encoded>("/damaged").type(thalweg::Type::of<robot::Total>()).open();
    auto waiting = node.subscriber<robot::Total>("/damaged").open();
    const auto called = node.subscriber<robot::Total>("/damaged")
                            .on_error([&](const std::exception& thrown) { wrong.tell(thrown.what()); })
                            .callback([&](const auto& total) { seen.tell(total->text); });
    CHECK(publisher.wait_connected(2, longest) && waiting.wait_connected(1, longest));
    auto message = thalweg::cdr::encode(robot::Total{1, "whole"});
    publisher.publish(thalweg::Span<const std::uint8_t>(message).subspan(0, message.size() - 1));
    publisher.publish(message);
    CHECK(contains(fails(Status::invalid, [&] { waiting.wait(longest); }), "found the end"));
    auto sample = waiting.wait(longest);
    CHECK(sample && (*sample)->text == "whole");
    CHECK(contains(wrong.wait(1).at(0), "found the end") && seen.wait(1).at(0) == "whole");
}

void plain_values_are_seen_in_place(const thalweg::Node& node, const thalweg::Node& there) {
    auto publisher = node.publisher<thalweg::Plain<Stamp>>("/plain").carriers("shm").open();
    auto subscriber = there.subscriber<thalweg::Plain<Stamp>>("/plain").carriers("shm").open();
    CHECK(publisher.wait_connected(1, longest) && subscriber.wait_connected(1, longest));
    auto loan = publisher.loan();
    *loan = {1, 2, 3.0};
    loan->zone = 4;
    loan.publish();
    const Stamp second = {5, 6, 7.0};
    publisher.publish(second);
    auto sample = subscriber.wait(longest);
    CHECK(sample && (*sample)->sequence == 1 && (*sample)->zone == 4 && (*sample)->time == 3.0);
    CHECK(static_cast<const void*>(&**sample) == sample->data().data());  // no copy
    auto next = subscriber.wait(longest);
    CHECK(next && (*next)->time == 7.0);
}

void loans_end_once(const thalweg::Node& node) {
    auto publisher = node.publisher<thalweg::Bytes>("/loans").open();
    auto subscriber = node.subscriber<thalweg::Bytes>("/loans").open();
    CHECK(publisher.wait_connected(1, longest) && subscriber.wait_connected(1, longest));
    {
        const auto dropped = publisher.loan(10);
        CHECK(!fails(Status::invalid, [&] { publisher.publish(std::vector<std::uint8_t>{1}); }).empty());
    }
    auto loan = publisher.loan(3);
    CHECK(loan.bytes().size() == 3);
    for (auto& byte : loan) byte = 9;
    std::thread other([&] { CHECK(!fails(Status::invalid, [&] { loan.publish(); }).empty()); });
    other.join();
    auto moved = std::move(loan);
    moved.publish();
    CHECK(!fails(Status::invalid, [&] { moved.publish(); }).empty());
    publisher.publish({});
    auto sample = subscriber.wait(longest);
    CHECK(sample && (*sample)->size() == 3 && (**sample)[2] == 9);
    auto nothing = subscriber.wait(longest);
    CHECK(nothing && (*nothing)->empty());
#if __cplusplus >= 202002L
    const std::span<const std::uint8_t> standard = **sample;
    CHECK(standard.size() == 3);
#endif
}

void large_values_are_encoded_in_place(const thalweg::Node& node) {
    auto publisher = node.publisher<robot::Everything>("/large").open();
    auto subscriber = node.subscriber<robot::Everything>("/large").open();
    CHECK(publisher.wait_connected(1, longest) && subscriber.wait_connected(1, longest));
    robot::Everything large = {};
    large.bytes.assign(1000000, 5);
    large.numbers = {0.25, 0.5};
    publisher.publish(large);
    auto sample = subscriber.wait(longest);
    CHECK(sample && (*sample)->bytes == large.bytes && (*sample)->numbers == large.numbers);
}

void waiting_ends_when_the_port_is_closed(const thalweg::Node& node) {
    auto subscriber = node.subscriber<Stamp>("/closed").open();
    std::thread waiting([&] { CHECK(!fails(Status::closed, [&] { subscriber.wait(thalweg::forever); }).empty()); });
    std::thread iterating([&] {
        auto others = node.subscriber<Stamp>("/closed").open();
        std::thread closing([&] { others.close(); });
        for (auto& sample : others.wait_for(thalweg::forever)) CHECK(sample->zone == 1);
        closing.join();
    });
    subscriber.close();
    waiting.join();
    iterating.join();
    CHECK(!fails(Status::closed, [&] { subscriber.take(); }).empty());
}

void ports_outlive_their_node(const std::string& realm) {
    thalweg::NodeOptions options;
    options.realm = realm + "-closed";
    auto node = std::make_unique<thalweg::Node>("short", options);
    auto publisher = node->publisher<Stamp>("/outlived").open();
    auto subscriber = node->subscriber<Stamp>("/outlived").open();
    const auto called = node->subscriber<Stamp>("/outlived").callback([](const auto&) {});
    std::thread waiting([&] { CHECK(!fails(Status::closed, [&] { subscriber.wait(thalweg::forever); }).empty()); });
    node.reset();
    waiting.join();
    CHECK(!fails(Status::closed, [&] { publisher.publish({1, 2, 3.0}); }).empty());
}

void priorities_are_set_while_samples_flow(const thalweg::Node& node, const thalweg::Node& there) {
    auto publisher = node.publisher<Stamp>("/set").named("/set/out").carriers("tcp").open();
    auto subscriber = there.subscriber<Stamp>("/set").named("/set/in").carriers("tcp").open();
    CHECK(publisher.wait_connected(1, longest) && subscriber.wait_connected(1, longest));
    CHECK(!node.set("/set/out", "/set/in", "class=high").empty());
    const auto ends = node.ends("/set/out");
    CHECK(ends.size() == 1 && ends[0].subscriber == "/set/in" && ends[0].carrier == "tcp" && ends[0].connected);
    CHECK(ends[0].priority == thalweg::Class::high && ends[0].dscp > 0);
    const auto ports = node.ports();
    const auto named = [&](const std::string& name, thalweg::Direction direction) {
        for (const auto& port : ports) {
            if (port.name == name && port.direction == direction) return port.topic == "/set" && port.type == "Stamp";
        }
        return false;
    };
    CHECK(named("/set/out", thalweg::Direction::publisher) && named("/set/in", thalweg::Direction::subscriber));
}

}  // namespace

int main(int argc, char** argv) try {
    static_assert(!std::is_copy_constructible_v<thalweg::Node> && !std::is_copy_constructible_v<thalweg::Publisher<Stamp>> &&
                  !std::is_copy_constructible_v<thalweg::Sample<Stamp>> && !std::is_copy_constructible_v<thalweg::Loan<thalweg::Bytes>>);
    static_assert(std::is_nothrow_move_constructible_v<thalweg::Node> && std::is_nothrow_move_assignable_v<thalweg::Subscriber<Stamp>> &&
                  std::is_nothrow_destructible_v<thalweg::Subscriber<Stamp>>);
    if (argc != 2) return 2;
    thalweg::NodeOptions options;
    options.realm = argv[1];
    const thalweg::Node node("alone", options);
    const thalweg::Node there("there", options);
    errors_say_whose_fault_it_is(node);
    texts_that_are_not_utf8_stay_here(node);
    samples_have_value_and_stamps(node);
    ranges_end_when_nothing_comes(node);
    descriptors_become_readable(node);
    what_a_callback_throws_is_reported(node);
    messages_that_are_no_value_are_errors(node);
    plain_values_are_seen_in_place(node, there);
    loans_end_once(node);
    large_values_are_encoded_in_place(node);
    waiting_ends_when_the_port_is_closed(node);
    ports_outlive_their_node(options.realm);
    priorities_are_set_while_samples_flow(node, there);
    std::puts("ok");
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "unexpected: %s\n", error.what());
    return 1;
}
