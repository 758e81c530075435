// Subscribers.
#ifndef THALWEG_SUBSCRIBER_HPP
#define THALWEG_SUBSCRIBER_HPP

#include <thalweg/callback.hpp>
#include <thalweg/error.hpp>
#include <thalweg/handle.hpp>
#include <thalweg/message.hpp>
#include <thalweg/policies.hpp>
#include <thalweg/sample.hpp>

#include <thalweg.h>

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace thalweg {

template <class T>
class Samples;

// Receives samples of a topic. It may be moved.
template <class T>
class Subscriber {
public:
    using Value = typename Message<T>::Value;

    Subscriber(Subscriber&&) noexcept = default;
    Subscriber& operator=(Subscriber&&) noexcept = default;

    // Takes the oldest waiting sample, without waiting. Throws Error for a message that is no value of the type; it has been taken then.
    std::optional<Sample<T>> take() {
        thalweg_sample* sample = nullptr;
        const thalweg_status status = thalweg_subscriber_take(handle_.get(), &sample);
        return taken(status, sample);
    }

    // As `take`; waits at most `timeout` for a sample. Throws Error if the port is closed meanwhile.
    std::optional<Sample<T>> wait(std::chrono::nanoseconds timeout) {
        thalweg_sample* sample = nullptr;
        const thalweg_status status = thalweg_subscriber_wait(handle_.get(), detail::nanoseconds(timeout), &sample);
        return taken(status, sample);
    }

    // The samples that come, as a range. It ends when none has come for `timeout`, or when the port is closed.
    Samples<T> wait_for(std::chrono::nanoseconds timeout) { return Samples<T>(*this, timeout); }

    // A descriptor for poll(2) and the like. It becomes readable when a sample comes after a `take` that found none: take until nothing is left,
    // then wait. It belongs to the subscriber and is only waited for, not read.
    int descriptor() const {
        int descriptor = -1;
        check(thalweg_subscriber_descriptor(handle_.get(), &descriptor));
        return descriptor;
    }

    // Waits until at least `count` channels exist; `false`: the time passed first.
    bool wait_connected(std::size_t count, std::chrono::nanoseconds timeout) const {
        const thalweg_status status = thalweg_subscriber_wait_connected(handle_.get(), count, detail::nanoseconds(timeout));
        if (status == THALWEG_TIMEOUT) return false;
        check(status);
        return true;
    }

    std::string name() const { return detail::text(thalweg_subscriber_name(handle_.get())); }

    // Closes the port, on any thread: calls that wait end. No callback runs after it, unless it is called by the callback itself.
    void close() { check(thalweg_subscriber_close(handle_.get())); }

    const thalweg_subscriber* get() const noexcept { return handle_.get(); }

private:
    template <class>
    friend class SubscriberBuilder;

    explicit Subscriber(thalweg_subscriber* handle) noexcept : handle_(handle) {}

    static std::optional<Sample<T>> taken(thalweg_status status, thalweg_sample* sample) {
        if (status == THALWEG_TIMEOUT) return std::nullopt;
        check(status);
        return Sample<T>(sample);
    }

    detail::Handle<thalweg_subscriber, thalweg_subscriber_free> handle_;
};

// The samples that come to a subscriber: `for (auto& sample : subscriber.wait_for(1s))`.
template <class T>
class Samples {
public:
    class Iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = Sample<T>;
        using difference_type = std::ptrdiff_t;
        using pointer = Sample<T>*;
        using reference = Sample<T>&;

        Sample<T>& operator*() const noexcept { return *samples_->present_; }
        Sample<T>* operator->() const noexcept { return &**this; }
        Iterator& operator++() {
            if (!samples_->next()) samples_ = nullptr;
            return *this;
        }
        void operator++(int) { ++*this; }
        bool operator==(const Iterator& other) const noexcept { return samples_ == other.samples_; }
        bool operator!=(const Iterator& other) const noexcept { return samples_ != other.samples_; }

    private:
        friend Samples;
        explicit Iterator(Samples* samples) noexcept : samples_(samples) {}
        Samples* samples_;
    };

    // Waits for the first sample.
    Iterator begin() { return Iterator(next() ? this : nullptr); }
    Iterator end() noexcept { return Iterator(nullptr); }

private:
    friend class Subscriber<T>;
    Samples(Subscriber<T>& subscriber, std::chrono::nanoseconds timeout) : subscriber_(subscriber), timeout_(timeout) {}

    bool next() {
        present_.reset();
        try {
            present_ = subscriber_.wait(timeout_);
        } catch (const Error& error) {
            if (error.status() != Status::closed) throw;
        }
        return present_.has_value();
    }

    Subscriber<T>& subscriber_;
    std::chrono::nanoseconds timeout_;
    std::optional<Sample<T>> present_;
};

// Settings of a subscriber, until `open` or `callback`.
template <class T>
class SubscriberBuilder : public PortBuilder<SubscriberBuilder<T>> {
public:
    // The shortest time between two samples; those between are not sent.
    SubscriberBuilder& separation(std::chrono::nanoseconds shortest) {
        return this->set(this->qos_.separation_ns, detail::nanoseconds(shortest));
    }
    // The port has no thread: `wait` receives. The fastest way for a thread that does nothing else. Without callback and descriptor.
    SubscriberBuilder& polled() { return this->set(polled_, true); }
    // Lets the callback run on the publisher's thread where both are in one process. A slow callback delays that publisher then.
    SubscriberBuilder& on_publisher_thread() { return this->set(on_publisher_thread_, true); }
    // Told what the callback throws. Default: it is written to standard error.
    SubscriberBuilder& on_error(ErrorHandler handler) { return this->set(handler_, std::move(handler)); }

    // Opens the port; samples are taken by `take`, `wait` or `wait_for`.
    Subscriber<T> open() {
        this->decide_type(Message<T>::type());
        return open(this->template options<thalweg_subscriber_options>());
    }

    // Opens the port. `callback` is called with every sample, a `const Sample<T>&`, on a thread of the library: the fastest way. Calls never
    // overlap.
    template <class F>
    Subscriber<T> callback(F callback) {
        using Called = Callback<T, F>;
        auto called = std::make_unique<Called>(std::move(callback), Reporter("the subscriber to " + this->topic_, handler_));
        auto options = this->template options<thalweg_subscriber_options>();
        options.callback = Called::call;
        options.release = Called::release;
        options.user = called.get();
        this->decide_type(Message<T>::type());
        static_cast<void>(called.release());  // from here on the library frees it, also if the port cannot be opened
        return open(options);
    }

private:
    friend class Node;
    SubscriberBuilder(const thalweg_node* node, std::string topic) : PortBuilder<SubscriberBuilder<T>>(node, std::move(topic)) {}

    Subscriber<T> open(thalweg_subscriber_options options) {
        options.polled = polled_;
        options.on_publisher_thread = on_publisher_thread_;
        const thalweg_type* type = this->type_ ? this->type_->get() : nullptr;
        thalweg_subscriber* opened = nullptr;
        check(thalweg_subscriber_open(this->node_, this->topic_.c_str(), type, &options, &opened));
        return Subscriber<T>(opened);
    }

    bool polled_ = false;
    bool on_publisher_thread_ = false;
    ErrorHandler handler_;
};

}  // namespace thalweg

#endif
