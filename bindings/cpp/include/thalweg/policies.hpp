// Policies of ports, and what the builders of publishers and subscribers share.
#ifndef THALWEG_POLICIES_HPP
#define THALWEG_POLICIES_HPP

#include <thalweg/error.hpp>
#include <thalweg/handle.hpp>
#include <thalweg/type.hpp>

#include <thalweg.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace thalweg {

// Packet priority.
enum class Class : std::uint32_t {
    low = THALWEG_CLASS_LOW,
    normal = THALWEG_CLASS_NORMAL,
    high = THALWEG_CLASS_HIGH,
    critical = THALWEG_CLASS_CRITICAL,
};

enum class Reliability : std::uint32_t {
    reliable = THALWEG_RELIABLE,
    best_effort = THALWEG_BEST_EFFORT,
};

// The queue of a channel that is slower than its publisher, or of samples that wait to be taken.
struct Queue {
    // The last `depth` samples wait.
    static Queue keep_last(std::uint32_t depth) { return {THALWEG_KEEP_LAST, depth, {}}; }
    // `depth` samples wait; further ones are refused.
    static Queue keep_all(std::uint32_t depth) { return {THALWEG_KEEP_ALL, depth, {}}; }
    // `depth` samples wait; publish waits up to `longest` for room.
    static Queue block(std::uint32_t depth, std::chrono::nanoseconds longest) { return {THALWEG_BLOCK, depth, longest}; }

    thalweg_queue kind;
    std::uint32_t depth;
    std::chrono::nanoseconds longest;
};

// Settings of a port. What is not called keeps its default.
template <class Self>
class PortBuilder {
public:
    // The port's name, such as "/publisher1": unique among all nodes. Default: /<node>/<topic>, numbered if need be.
    Self& named(std::string name) { return set(name_, std::move(name)); }
    Self& reliability(Reliability reliability) { return set(qos_.reliability, static_cast<std::uint32_t>(reliability)); }
    Self& queue(const Queue& queue) {
        qos_.block_ns = detail::nanoseconds(queue.longest);
        qos_.depth = queue.depth;
        return set(qos_.queue, static_cast<std::uint32_t>(queue.kind));
    }
    // Late joiners get the last samples of a publisher.
    Self& transient_local(std::uint32_t history) {
        qos_.history = history;
        return set(qos_.durability, static_cast<std::uint32_t>(THALWEG_TRANSIENT_LOCAL));
    }
    // The longest time between two samples: promised by a publisher, expected by a subscriber.
    Self& deadline(std::chrono::nanoseconds longest) { return set(qos_.deadline_ns, detail::nanoseconds(longest)); }
    Self& latency_budget(std::chrono::nanoseconds longest) { return set(qos_.latency_budget_ns, detail::nanoseconds(longest)); }
    // Older samples are dropped.
    Self& lifespan(std::chrono::nanoseconds longest) { return set(qos_.lifespan_ns, detail::nanoseconds(longest)); }
    // Largest encoded message in bytes. Default: 16 MiB.
    Self& max_message(std::uint32_t bytes) { return set(qos_.max_message, bytes); }
    // Policies and priorities by name, as `thalweg set` has them, such as "deadline=20ms sched=fifo:30". They count more than the others.
    Self& settings(std::string settings) { return set(settings_, std::move(settings)); }
    // The carriers that are allowed, best first, separated by commas.
    Self& carriers(std::string names) { return set(carriers_, std::move(names)); }
    // Opens only as part of this session, which a broker has admitted with the topic.
    Self& session(std::string name) { return set(session_, std::move(name)); }
    // The type, where it is known at run time only.
    Self& type(Type type) { return set(type_, std::optional<Type>(std::move(type))); }
    // The type of ROS 2 that the messages are: its name and the text of its .msg file. The value's struct has to have the same name, without
    // its package, and the same fields.
    Self& ros(const std::string& name, const std::string& text) { return type(Type::ros(name, text)); }

protected:
    PortBuilder(const thalweg_node* node, std::string topic) : node_(node), topic_(std::move(topic)) { qos_.size = sizeof(qos_); }

    template <class V>
    Self& set(V& place, V value) {
        place = std::move(value);
        return static_cast<Self&>(*this);
    }

    // The type to open with: the stated one, or that of the values.
    void decide_type(std::optional<Type> of_values) {
        if (type_ && of_values && !of_values->accepts(*type_)) {
            throw Error(Status::invalid, "the type " + type_->name() + " of " + topic_ + " is not that of its values, " + of_values->name() +
                                             "; give the struct the name and the fields of the stated type, in their order");
        }
        if (!type_) type_ = std::move(of_values);
    }

    // Fills in what the options of publisher and subscriber have in common. They point into this builder.
    template <class Options>
    Options options() const {
        Options options = {};
        options.size = sizeof(options);
        options.name = detail::pointer(name_);
        options.qos = &qos_;
        options.settings = detail::pointer(settings_);
        options.carriers = detail::pointer(carriers_);
        options.session = detail::pointer(session_);
        return options;
    }

    const thalweg_node* node_;
    std::string topic_;
    std::optional<Type> type_;
    thalweg_qos qos_ = {};

private:
    std::string name_;
    std::string settings_;
    std::string carriers_;
    std::string session_;
};

}  // namespace thalweg

#endif
