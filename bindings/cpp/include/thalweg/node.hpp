// Nodes: where everything starts.
#ifndef THALWEG_NODE_HPP
#define THALWEG_NODE_HPP

#include <thalweg/error.hpp>
#include <thalweg/handle.hpp>
#include <thalweg/policies.hpp>
#include <thalweg/publisher.hpp>
#include <thalweg/service.hpp>
#include <thalweg/subscriber.hpp>

#include <thalweg.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace thalweg {

// Settings of a node. Texts with several parts have commas between them.
struct NodeOptions {
    // Nodes of different realms do not see each other. Default: "default".
    std::string realm = {};
    // Addresses to listen on besides loopback, such as "10.0.0.2:0". Default: none, this host only.
    std::string listen = {};
    // Nodes or routers on other hosts to connect to, such as "tcp/10.0.0.1:7447".
    std::string peers = {};
    // A file with the addresses of other hosts' nodes. Default: they are found by themselves.
    std::string discovery_file = {};
    // Networks of other hosts whose administrators may change this node, such as "10.0.0.0/24". Default: none.
    std::string admin_from = {};
    // Bytes that all channels of the node may hold together. Default: 1 GiB.
    std::uint64_t memory = 0;
    // Keeps the whole process in memory (mlockall).
    bool lock_memory = false;
};

enum class Direction : std::uint32_t {
    publisher = THALWEG_PUBLISHER,
    subscriber = THALWEG_SUBSCRIBER,
};

// A port of any node.
struct PortInfo {
    std::string name;
    std::string topic;
    std::string type;
    std::string node_name;
    std::uint64_t node;
    Direction direction;
};

// One end of a channel, as the kernel has it.
struct EndInfo {
    std::string publisher;
    std::string subscriber;
    // "publisher" or "subscriber".
    std::string end;
    // Empty: not connected.
    std::string carrier;
    // Policy and priority of the thread that serves the end: "other", "fifo", "rr" …; empty: none does.
    std::string sched;
    std::uint32_t sched_priority;
    // The class that its packets have; none: unmarked.
    std::optional<Class> priority;
    // The code point in its packets; -1: the carrier has none.
    std::int32_t dscp;
    bool connected;
    // The marks have the effect that their class promises, or have not, because of this.
    bool effective;
    std::string because;
    // A further note; empty: none.
    std::string note;
};

// One participating process, or one context in it. Its ports may live longer; they are closed with it.
class Node {
public:
    // Opens a node that listens on loopback only.
    explicit Node(const std::string& name) : Node(name, NodeOptions()) {}

    Node(const std::string& name, const NodeOptions& wanted) {
        thalweg_node_options options = {};
        options.size = sizeof(options);
        options.realm = detail::pointer(wanted.realm);
        options.listen = detail::pointer(wanted.listen);
        options.peers = detail::pointer(wanted.peers);
        options.discovery_file = detail::pointer(wanted.discovery_file);
        options.admin_from = detail::pointer(wanted.admin_from);
        options.memory = wanted.memory;
        options.lock_memory = wanted.lock_memory;
        thalweg_node* opened = nullptr;
        check(thalweg_node_open(name.c_str(), &options, &opened));
        handle_.reset(opened);
    }

    Node(Node&&) noexcept = default;
    Node& operator=(Node&&) noexcept = default;

    // Begins a publisher of `topic`; call `open` on the result.
    template <class T>
    PublisherBuilder<T> publisher(std::string topic) const {
        return PublisherBuilder<T>(get(), std::move(topic));
    }

    // Begins a subscriber to `topic`, which may be a pattern (`*` one segment, `**` any number); call `open` or `callback` on the result.
    template <class T>
    SubscriberBuilder<T> subscriber(std::string topic) const {
        return SubscriberBuilder<T>(get(), std::move(topic));
    }

    // Opens a server on `topic`. `answer` is called with every question, a `const Q&`, on a thread of the library, and gives an `A`. What it
    // throws goes to `handler`, or to standard error; the client's time passes then.
    template <class Q, class A, class F>
    Server server(const std::string& topic, F answer, ErrorHandler handler = {}) const {
        return Server::open<Q, A>(get(), topic, std::move(answer), std::move(handler));
    }

    // A client of the service on `topic`.
    template <class Q, class A>
    Client<Q, A> client(const std::string& topic) const {
        return Client<Q, A>::open(get(), topic);
    }

    std::string name() const { return detail::text(thalweg_node_name(get())); }

    // The node's next event as a text: a match, a mismatch with its reason, losses, warnings. Nothing: the time passed first.
    std::optional<std::string> wait_event(std::chrono::nanoseconds timeout) const {
        char* event = nullptr;
        const thalweg_status status = thalweg_node_wait_event(get(), detail::nanoseconds(timeout), &event);
        if (status == THALWEG_TIMEOUT) return std::nullopt;
        check(status);
        return owned(event);
    }

    // All ports that are known now, of all nodes.
    std::vector<PortInfo> ports() const {
        Gathered<PortInfo, thalweg_port_info> found;
        const thalweg_status status = thalweg_node_visit_ports(get(), found.visit, &found);
        return found.result(status);
    }

    // The ends at `port` of all its channels.
    std::vector<EndInfo> ends(const std::string& port) const {
        Gathered<EndInfo, thalweg_end_info> found;
        const thalweg_status status = thalweg_node_visit_ends(get(), port.c_str(), found.visit, &found);
        return found.result(status);
    }

    // Sets the priority of a live channel at both ends, as `thalweg set` does: "class=high sched=fifo:30 affinity=1". All is set, or nothing.
    // Returns the state that results, and whether it has an effect.
    std::string set(const std::string& publisher, const std::string& subscriber, const std::string& settings) const {
        char* effect = nullptr;
        check(thalweg_node_set(get(), publisher.c_str(), subscriber.c_str(), settings.c_str(), &effect));
        return owned(effect);
    }

    // Closes the node and all its ports.
    void close() { check(thalweg_node_close(get())); }

    const thalweg_node* get() const noexcept { return handle_.get(); }

private:
    static std::string owned(char* text) {
        const detail::Handle<char, thalweg_string_free> freed(text);
        return detail::text(text);
    }

    static PortInfo copied(const thalweg_port_info& port) {
        return {detail::text(port.name),      detail::text(port.topic), detail::text(port.type_name),
                detail::text(port.node_name), port.node,                static_cast<Direction>(port.direction)};
    }

    static EndInfo copied(const thalweg_end_info& end) {
        std::optional<Class> priority;
        if (end.priority_class != THALWEG_CLASS_DEFAULT) priority = static_cast<Class>(end.priority_class);
        return {detail::text(end.publisher), detail::text(end.subscriber), detail::text(end.end), detail::text(end.carrier),
                detail::text(end.sched),     end.sched_priority,           priority,              end.dscp,
                end.connected,               end.effective,                detail::text(end.because), detail::text(end.note)};
    }

    // What a visit of the C interface shows, copied. What goes wrong within the visit is thrown behind it.
    template <class Info, class Shown>
    struct Gathered {
        std::vector<Info> all;
        std::exception_ptr wrong;

        static bool visit(const Shown* shown, void* user) noexcept {
            auto& self = *static_cast<Gathered*>(user);
            try {
                self.all.push_back(copied(*shown));
            } catch (...) {
                self.wrong = std::current_exception();
            }
            return self.wrong == nullptr;
        }

        std::vector<Info> result(thalweg_status status) {
            if (wrong) std::rethrow_exception(wrong);
            check(status);
            return std::move(all);
        }
    };

    detail::Handle<thalweg_node, thalweg_node_free> handle_;
};

// Sets policy and priority of the calling thread: "fifo:30", "rr:10", "other", "deadline:1ms/10ms".
inline void schedule_this_thread(const std::string& scheduling) {
    check(thalweg_schedule_this_thread(scheduling.c_str()));
}

// Version of the library, such as "0.1.0".
inline std::string version() {
    return detail::text(thalweg_version());
}

}  // namespace thalweg

#endif
