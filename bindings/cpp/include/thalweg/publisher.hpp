// Publishers, and messages that are written in place.
#ifndef THALWEG_PUBLISHER_HPP
#define THALWEG_PUBLISHER_HPP

#include <thalweg/cdr.hpp>
#include <thalweg/error.hpp>
#include <thalweg/handle.hpp>
#include <thalweg/message.hpp>
#include <thalweg/policies.hpp>
#include <thalweg/sample.hpp>
#include <thalweg/span.hpp>

#include <thalweg.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg {

// The outcome of a publication on all channels: number of the sample (`seq`), and of channels on which it was `sent`, waits (`queued`), was
// `dropped`, `refused`, or that are `not_connected`.
using Published = thalweg_published;

// A message that is being written in place: in the subscribers' own shared memory where the carrier allows. Its content is left over from an
// older one. It stays on the thread that took it, and ends before its publisher does; other calls of the publisher wait for that.
template <class T>
class Loan {
public:
    using Value = typename Message<T>::Value;

    Loan(Loan&&) noexcept = default;
    Loan& operator=(Loan&&) noexcept = default;

    // The memory to be written: for Bytes and Encoded.
    Span<std::uint8_t> bytes() const noexcept { return bytes_; }
    std::uint8_t* begin() const noexcept { return bytes_.begin(); }
    std::uint8_t* end() const noexcept { return bytes_.end(); }

    // Publishes the message. The loan is gone then, also after an error.
    Published publish() {
        if (handle_ == nullptr) throw Error(Status::invalid, "the loan was published or moved before; take another one");
        if (thread_ != std::this_thread::get_id()) {
            throw Error(Status::invalid, "the loan was taken on another thread; publish it on that one");
        }
        Published published = {};
        bytes_ = {};
        check(thalweg_loan_publish(handle_.release(), &published));
        return published;
    }

protected:
    Loan(thalweg_loan* handle, void* data, std::size_t size) noexcept
        : handle_(handle), bytes_(static_cast<std::uint8_t*>(data), size), thread_(std::this_thread::get_id()) {}

private:
    template <class>
    friend class Publisher;

    static void drop(thalweg_loan* loan) noexcept { static_cast<void>(thalweg_loan_drop(loan)); }

    detail::Handle<thalweg_loan, drop> handle_;
    Span<std::uint8_t> bytes_;
    std::thread::id thread_;
};

// A plain value that is being written in place, by `*` and `->`.
template <class T>
class Loan<Plain<T>> : private Loan<Encoded> {
public:
    using Value = T;
    using Loan<Encoded>::publish;

    T& operator*() const noexcept { return *reinterpret_cast<T*>(bytes().data()); }
    T* operator->() const noexcept { return &**this; }

private:
    template <class>
    friend class Publisher;

    Loan(thalweg_loan* handle, void* data, std::size_t size) : Loan<Encoded>(handle, data, size) {
        if (reinterpret_cast<std::uintptr_t>(data) % alignof(T) != 0) {
            throw Error(Status::invalid, "the loan's memory is not aligned for the type; publish a value instead");
        }
    }
};

// Publishes samples of a topic. It may be moved, and belongs to one thread at a time.
template <class T>
class Publisher {
public:
    using Value = typename Message<T>::Value;

    Publisher(Publisher&&) noexcept = default;
    Publisher& operator=(Publisher&&) noexcept = default;

    // Publishes a sample on all channels. Never waits for a subscriber unless the queue blocks. A channel that cannot take the sample is no
    // error: the result counts it.
    Published publish(const Value& value) {
        if constexpr (is_memory<T>) {
            return publish_bytes(Message<T>::bytes(value));
        } else {
            const std::size_t length = cdr::size(value);
            if (length >= in_place_from) return publish_in_place(value, length);
            if (buffer_.size() < length) buffer_.resize(length);
            cdr::fill(value, buffer_.data());
            return publish_bytes({buffer_.data(), length});
        }
    }

    // A message of `length` bytes to be written in place.
    template <class U = T, class = std::enable_if_t<is_memory<U> && std::is_same_v<Value, Span<const std::uint8_t>>>>
    Loan<U> loan(std::size_t length) {
        return lend<U>(length);
    }

    // A plain value to be written in place.
    template <class U = T, class = std::enable_if_t<is_memory<U> && !std::is_same_v<Value, Span<const std::uint8_t>>>>
    Loan<U> loan() {
        return lend<U>(sizeof(Value));
    }

    // Publishes a sample that another port received, with its stamp.
    template <class U>
    Published forward(const Sample<U>& sample) {
        Published published = {};
        check(thalweg_publisher_forward(handle_.get(), sample.get(), &published));
        return published;
    }

    // Waits until at least `count` channels exist; `false`: the time passed first.
    bool wait_connected(std::size_t count, std::chrono::nanoseconds timeout) const {
        return came(thalweg_publisher_wait_connected(handle_.get(), count, detail::nanoseconds(timeout)));
    }

    std::string name() const { return detail::text(thalweg_publisher_name(handle_.get())); }

    // Closes the port after waiting at most `drain` for unsent samples; `false`: some were dropped.
    bool close(std::chrono::nanoseconds drain) { return came(thalweg_publisher_close(handle_.get(), detail::nanoseconds(drain))); }

    const thalweg_publisher* get() const noexcept { return handle_.get(); }

private:
    template <class>
    friend class PublisherBuilder;

    // From this length on a value is encoded in a loan: copying it once more would cost more than the loan does.
    static constexpr std::size_t in_place_from = 16 * 1024;

    explicit Publisher(thalweg_publisher* handle) noexcept : handle_(handle) {}

    static bool came(thalweg_status status) {
        if (status == THALWEG_TIMEOUT) return false;
        check(status);
        return true;
    }

    Published publish_bytes(Span<const std::uint8_t> message) {
        static constexpr std::uint8_t nothing = 0;  // a message without bytes has a place, too
        const std::uint8_t* data = message.empty() ? &nothing : message.data();
        Published published = {};
        check(thalweg_publisher_publish(handle_.get(), data, message.size(), &published));
        return published;
    }

    Published publish_in_place(const Value& value, std::size_t length) {
        Loan<Encoded> loan = lend<Encoded>(length);
        cdr::fill(value, loan.bytes().data());
        return loan.publish();
    }

    template <class U>
    Loan<U> lend(std::size_t length) {
        thalweg_loan* loan = nullptr;
        void* data = nullptr;
        check(thalweg_publisher_loan(handle_.get(), length, &loan, &data));
        return Loan<U>(loan, data, length);
    }

    detail::Handle<thalweg_publisher, thalweg_publisher_free> handle_;
    std::vector<std::uint8_t> buffer_;
};

// Settings of a publisher, until `open`.
template <class T>
class PublisherBuilder : public PortBuilder<PublisherBuilder<T>> {
public:
    // Packet priority of the channels.
    PublisherBuilder& priority(Class priority) {
        return this->set(this->qos_.priority_class, static_cast<std::uint32_t>(priority));
    }

    // Opens the port.
    Publisher<T> open() {
        this->decide_type(Message<T>::type());
        if (!this->type_) throw Error(Status::invalid, "a publisher of Encoded needs a type; state it by type() or ros()");
        const auto options = this->template options<thalweg_publisher_options>();
        thalweg_publisher* opened = nullptr;
        check(thalweg_publisher_open(this->node_, this->topic_.c_str(), this->type_->get(), &options, &opened));
        return Publisher<T>(opened);
    }

private:
    friend class Node;
    PublisherBuilder(const thalweg_node* node, std::string topic) : PortBuilder<PublisherBuilder<T>>(node, std::move(topic)) {}
};

}  // namespace thalweg

#endif
