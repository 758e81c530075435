// UTF-8, as Unicode's table 3-7 has it: strings of a message are valid, at whichever end they are looked at.
#ifndef THALWEG_UTF8_HPP
#define THALWEG_UTF8_HPP

#include <cstddef>
#include <cstdint>

namespace thalweg::utf8 {

// The bytes of a sequence and the range of its second byte, by its first byte. No bytes: nothing begins with it.
struct Lead {
    std::size_t length;
    std::uint8_t low;
    std::uint8_t high;
};

constexpr Lead lead(std::uint8_t first) noexcept {
    if (first < 0x80) return {1, 0, 0};
    if (first < 0xc2 || first > 0xf4) return {0, 0, 0};
    if (first < 0xe0) return {2, 0x80, 0xbf};
    if (first < 0xf0) return {3, static_cast<std::uint8_t>(first == 0xe0 ? 0xa0 : 0x80), static_cast<std::uint8_t>(first == 0xed ? 0x9f : 0xbf)};
    return {4, static_cast<std::uint8_t>(first == 0xf0 ? 0x90 : 0x80), static_cast<std::uint8_t>(first == 0xf4 ? 0x8f : 0xbf)};
}

// The number of bytes up to which the text is valid: `size` if all of it is.
constexpr std::size_t valid_up_to(const char* text, std::size_t size) noexcept {
    const auto byte = [text](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
    std::size_t at = 0;
    while (at < size) {
        const Lead found = lead(byte(at));
        if (found.length == 0 || found.length > size - at) return at;
        if (found.length > 1 && (byte(at + 1) < found.low || byte(at + 1) > found.high)) return at;
        for (std::size_t next = 2; next < found.length; ++next) {
            if ((byte(at + next) & 0xc0) != 0x80) return at;
        }
        at += found.length;
    }
    return at;
}

}  // namespace thalweg::utf8

#endif
