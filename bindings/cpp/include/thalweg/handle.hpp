// Handles of the C interface with an owner, and the values that are passed to it: texts and durations.
#ifndef THALWEG_HANDLE_HPP
#define THALWEG_HANDLE_HPP

#include <thalweg.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace thalweg {

// Waits without end.
inline constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();

namespace detail {

template <class H, void (*Free)(H*)>
struct Deleter {
    void operator()(H* handle) const noexcept { Free(handle); }
};

template <class H, void (*Free)(H*)>
using Handle = std::unique_ptr<H, Deleter<H, Free>>;

// A text of the C interface, where it need not be there.
inline std::string text(const char* found) {
    return found == nullptr ? std::string() : std::string(found);
}

// A text for the C interface, whose default is null.
inline const char* pointer(const std::string& text) noexcept {
    return text.empty() ? nullptr : text.c_str();
}

// A time that has passed is none.
inline std::uint64_t nanoseconds(std::chrono::nanoseconds time) noexcept {
    if (time == forever) return THALWEG_FOREVER;
    return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

}  // namespace detail
}  // namespace thalweg

#endif
