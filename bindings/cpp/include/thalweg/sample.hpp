// Received samples.
#ifndef THALWEG_SAMPLE_HPP
#define THALWEG_SAMPLE_HPP

#include <thalweg/error.hpp>
#include <thalweg/handle.hpp>
#include <thalweg/message.hpp>
#include <thalweg/span.hpp>

#include <thalweg.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace thalweg {

// Publisher, number and time stamps of a sample.
struct SampleInfo {
    // Given by `publish`, counted from 1.
    std::uint64_t seq;
    // Time of publication, by the monotonic clock of the publisher's host.
    std::chrono::nanoseconds source;
    // Time of reception, by the monotonic clock of this host.
    std::chrono::nanoseconds received;
    // From publication to reception; nothing if the two clocks differ.
    std::optional<std::chrono::nanoseconds> latency;
    // Id of the publishing node.
    std::uint64_t node;
    // Name of the publishing port and of its type; empty if not known. Valid as long as the sample.
    std::string_view publisher;
    std::string_view type;
    // It was published before the subscriber joined.
    bool historical;
    // The instance ends: only the key of the sample counts.
    bool disposed;

    // The latency in microseconds; not a number if it is not known.
    double latency_us() const noexcept {
        return latency ? static_cast<double>(latency->count()) / 1000.0 : std::numeric_limits<double>::quiet_NaN();
    }
};

// A received sample: its value by `*` and `->`. One that was taken is kept as long as it is wanted; one in a callback is valid
// until the callback returns.
template <class T>
class Sample {
public:
    using Value = typename Message<T>::Value;

    Sample(Sample&&) noexcept = default;
    Sample& operator=(Sample&&) noexcept = default;

    const Value& operator*() const noexcept { return Message<T>::view(held_); }
    const Value* operator->() const noexcept { return &**this; }

    // The message as it was received: over `shm`, in the publisher's memory.
    Span<const std::uint8_t> data() const noexcept { return bytes_of(sample_); }

    SampleInfo info() const {
        thalweg_sample_info found = {};
        found.size = sizeof(found);
        check(thalweg_sample_read_info(sample_, &found));
        std::optional<std::chrono::nanoseconds> latency;
        if (found.same_clock) latency = std::chrono::nanoseconds(found.latency_ns);
        return {found.seq,
                std::chrono::nanoseconds(found.source_ns),
                std::chrono::nanoseconds(found.received_ns),
                latency,
                found.node,
                view(found.publisher),
                view(found.type_name),
                found.historical,
                found.disposed};
    }

    const thalweg_sample* get() const noexcept { return sample_; }

private:
    template <class>
    friend class Subscriber;
    template <class, class>
    friend class Callback;
    using Held = typename Message<T>::Held;

    // A sample that was taken. `taken` has been freed if this throws.
    explicit Sample(thalweg_sample* taken) : owned_(taken), sample_(taken) { Message<T>::receive(bytes_of(taken), held_); }

    // A sample in a callback, decoded into `held`, whose memory it uses again.
    Sample(const thalweg_sample* shown, Held&& held) : sample_(shown), held_(std::move(held)) {
        Message<T>::receive(bytes_of(shown), held_);
    }

    static std::string_view view(const char* text) noexcept { return text == nullptr ? std::string_view() : text; }

    static Span<const std::uint8_t> bytes_of(const thalweg_sample* sample) noexcept {
        return {static_cast<const std::uint8_t*>(thalweg_sample_data(sample)), thalweg_sample_len(sample)};
    }

    detail::Handle<thalweg_sample, thalweg_sample_free> owned_;
    const thalweg_sample* sample_;
    Held held_{};
};

}  // namespace thalweg

#endif
