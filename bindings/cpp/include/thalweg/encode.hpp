// Pieces of a CDR message as they are written: little-endian, aligned, behind the encapsulation header.
//
// A message is written in two passes by the same code: the first one counts its bytes, the second one fills them in. So it
// is written where it is sent from, be that a loan, without a buffer that grows.
#ifndef THALWEG_ENCODE_HPP
#define THALWEG_ENCODE_HPP

#include <thalweg/error.hpp>
#include <thalweg/utf8.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

namespace thalweg::cdr {

// CDR, little-endian, no options (DDSI-RTPS 2.5 §10.2). Alignment counts from behind it.
inline constexpr std::uint8_t header[4] = {0x00, 0x01, 0x00, 0x00};

// The deepest nesting of structs and sequences that is written or read.
inline constexpr unsigned max_depth = 64;

inline constexpr bool little_endian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

// The padding in front of a number of `size` bytes, a power of two.
constexpr std::size_t padding(std::size_t at, std::size_t size) noexcept {
    return (0 - at) & (size - 1);
}

// The first pass: counts, and refuses what no message can carry.
class Counter {
public:
    std::size_t at() const noexcept { return at_; }
    void align(std::size_t size) noexcept { at_ += padding(at_, size); }

    template <class N>
    void number(N) noexcept {
        align(sizeof(N));
        at_ += sizeof(N);
    }

    void raw(const void*, std::size_t size) noexcept { at_ += size; }

    void length(std::size_t length) {
        if (length > std::numeric_limits<std::uint32_t>::max()) {
            refuse("a length of at most 4294967295, found " + std::to_string(length));
        }
        number(std::uint32_t{});
    }

    void text(const std::string& text) {
        const std::size_t valid = utf8::valid_up_to(text.data(), text.size());
        if (valid != text.size()) {
            refuse("a string in UTF-8, found byte " + std::to_string(static_cast<std::uint8_t>(text[valid])) +
                   " at place " + std::to_string(valid) + " of it; send other bytes as std::vector<std::uint8_t>");
        }
        length(text.size() + 1);
        at_ += text.size() + 1;
    }

    void enter() {
        if (++depth_ > max_depth) refuse("at most 64 levels of nesting, found more");
    }
    void leave() noexcept { --depth_; }

private:
    [[noreturn]] static void refuse(const std::string& problem) {
        throw Error(Status::invalid, "the value cannot be encoded: expected " + problem);
    }

    std::size_t at_ = 0;
    unsigned depth_ = 0;
};

// The second pass: fills memory that is as long as the first pass counted.
class Filler {
public:
    // `body` is the memory behind the header.
    explicit Filler(std::uint8_t* body) noexcept : body_(body) {}

    std::size_t at() const noexcept { return at_; }

    void align(std::size_t size) noexcept {
        for (std::size_t left = padding(at_, size); left > 0; --left) body_[at_++] = 0;
    }

    template <class N>
    void number(N value) noexcept {
        align(sizeof(N));
        std::memcpy(body_ + at_, &value, sizeof(N));
        if constexpr (!little_endian) std::reverse(body_ + at_, body_ + at_ + sizeof(N));
        at_ += sizeof(N);
    }

    void raw(const void* bytes, std::size_t size) noexcept {
        if (size > 0) std::memcpy(body_ + at_, bytes, size);
        at_ += size;
    }

    void length(std::size_t length) noexcept { number(static_cast<std::uint32_t>(length)); }

    void text(const std::string& text) noexcept {
        length(text.size() + 1);
        raw(text.c_str(), text.size() + 1);
    }

    void enter() noexcept {}
    void leave() noexcept {}

private:
    std::uint8_t* body_;
    std::size_t at_ = 0;
};

}  // namespace thalweg::cdr

#endif
