// Services: a server answers the questions of clients on a topic.
#ifndef THALWEG_SERVICE_HPP
#define THALWEG_SERVICE_HPP

#include <thalweg/callback.hpp>
#include <thalweg/cdr.hpp>
#include <thalweg/error.hpp>
#include <thalweg/handle.hpp>
#include <thalweg/message.hpp>
#include <thalweg/type.hpp>

#include <thalweg.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace thalweg {

// Answers questions until it is closed or destroyed.
class Server {
public:
    Server(Server&&) noexcept = default;
    Server& operator=(Server&&) noexcept = default;

    void close() { check(thalweg_server_close(handle_.get())); }

private:
    friend class Node;

    template <class Q, class A, class F>
    static Server open(const thalweg_node* node, const std::string& topic, F answer, ErrorHandler handler) {
        using Called = Answering<Q, A, F>;
        const Type questions = Type::of<Q>();
        const Type answers = Type::of<A>();
        auto called = std::make_unique<Called>(std::move(answer), Reporter("the server on " + topic, std::move(handler)));
        thalweg_server* opened = nullptr;
        // From here on the library frees it, also if the port cannot be opened.
        check(thalweg_server_open(node, topic.c_str(), questions.get(), answers.get(), Called::call, called.release(), Called::release, &opened));
        return Server(opened);
    }

    explicit Server(thalweg_server* handle) noexcept : handle_(handle) {}

    detail::Handle<thalweg_server, thalweg_server_free> handle_;
};

// Asks questions of type `Q` and waits for answers of type `A`. It belongs to one thread at a time.
template <class Q, class A>
class Client {
public:
    Client(Client&&) noexcept = default;
    Client& operator=(Client&&) noexcept = default;

    // Asks, and waits at most `timeout` for the answer. Throws Error (Status::timeout) if no server is there or none answers in time.
    A call(const Q& question, std::chrono::nanoseconds timeout) {
        const auto message = cdr::encode_into(question, buffer_);
        thalweg_sample* answered = nullptr;
        check(thalweg_client_call(handle_.get(), message.data(), message.size(), detail::nanoseconds(timeout), &answered));
        const detail::Handle<thalweg_sample, thalweg_sample_free> answer(answered);
        return cdr::decode<A>({static_cast<const std::uint8_t*>(thalweg_sample_data(answered)), thalweg_sample_len(answered)});
    }

    void close() { check(thalweg_client_close(handle_.get())); }

private:
    friend class Node;

    static Client open(const thalweg_node* node, const std::string& topic) {
        thalweg_client* opened = nullptr;
        check(thalweg_client_open(node, topic.c_str(), Type::of<Q>().get(), Type::of<A>().get(), &opened));
        return Client(opened);
    }

    explicit Client(thalweg_client* handle) noexcept : handle_(handle) {}

    detail::Handle<thalweg_client, thalweg_client_free> handle_;
    std::vector<std::uint8_t> buffer_;
};

}  // namespace thalweg

#endif
