// Pieces of a CDR message as they are read, in either byte order. Nothing is read past the end, and no count is believed
// before it is compared with the bytes that are left.
#ifndef THALWEG_DECODE_HPP
#define THALWEG_DECODE_HPP

#include <thalweg/encode.hpp>
#include <thalweg/error.hpp>
#include <thalweg/span.hpp>
#include <thalweg/utf8.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace thalweg::cdr {

// A position in one message.
class Reader {
public:
    // Checks the encapsulation header and stands behind it.
    explicit Reader(Span<const std::uint8_t> message) : begin_(message.data()), size_(message.size()) {
        if (size_ < sizeof(header)) {
            refuse(0, "expected an encapsulation header of 4 bytes, found " + std::to_string(message.size()) + " bytes in all");
        }
        if (begin_[0] != 0 || begin_[1] > 1) {
            refuse(0, "expected the encapsulation 00 00 or 00 01 (CDR), found the numbers " + std::to_string(begin_[0]) +
                          " and " + std::to_string(begin_[1]));
        }
        swapped_ = (begin_[1] == 1) != little_endian;
        begin_ += sizeof(header);
        size_ -= sizeof(header);
    }

    // Bytes from behind the header to the next one.
    std::size_t at() const noexcept { return at_; }
    std::size_t remaining() const noexcept { return size_ - at_; }
    // `true` if numbers have another byte order than this machine's.
    bool swapped() const noexcept { return swapped_; }

    // The next piece of memory, which stays the message's.
    const std::uint8_t* raw(std::size_t size, const char* what) {
        if (size > remaining()) early_end(what, size);
        const std::uint8_t* found = begin_ + at_;
        at_ += size;
        return found;
    }

    void align(std::size_t size, const char* what) {
        const std::size_t skipped = padding(at_, size);
        if (skipped > remaining()) early_end(what, size);
        at_ += skipped;
    }

    template <class N>
    N number(const char* what) {
        align(sizeof(N), what);
        const std::uint8_t* found = raw(sizeof(N), what);
        N value;
        if (!swapped_) {
            std::memcpy(&value, found, sizeof(N));
            return value;
        }
        std::uint8_t bytes[sizeof(N)];
        for (std::size_t i = 0; i < sizeof(N); ++i) bytes[i] = found[sizeof(N) - 1 - i];
        std::memcpy(&value, bytes, sizeof(N));
        return value;
    }

    bool boolean() {
        const auto found = number<std::uint8_t>("a bool");
        if (found > 1) fail(at_ - 1, "expected a bool (0 or 1), found " + std::to_string(found));
        return found == 1;
    }

    // The count of a sequence whose elements take at least `least` bytes each.
    std::size_t count(std::size_t least) {
        const std::size_t found = number<std::uint32_t>("the count of a sequence");
        if (found > remaining() / least) {
            fail(at_ - 4, "expected the count of a sequence that fits " + std::to_string(remaining()) + " bytes, found " +
                              std::to_string(found));
        }
        return found;
    }

    // Some writers give an empty string the length 0; any other has its NUL.
    void text(std::string& into) {
        const std::size_t length = number<std::uint32_t>("the length of a string");
        if (length == 0) return into.clear();
        const std::size_t start = at_;
        const char* found = reinterpret_cast<const char*>(raw(length, "a string"));
        if (found[length - 1] != 0) fail(at_ - 1, "expected the NUL that ends a string, found another byte");
        const std::size_t valid = utf8::valid_up_to(found, length - 1);
        if (valid != length - 1) {
            fail(start + valid, "expected a string in UTF-8, found byte " + std::to_string(static_cast<std::uint8_t>(found[valid])));
        }
        into.assign(found, length - 1);
    }

    void enter() {
        if (++depth_ > max_depth) fail(at_, "expected at most 64 levels of nesting, found more");
    }
    void leave() noexcept { --depth_; }

    // Checks that only padding follows, up to a multiple of 4 bytes.
    void finish() const {
        if (remaining() > 3) {
            fail(at_, "expected the end (or up to 3 bytes of padding), found " + std::to_string(remaining()) + " bytes more");
        }
    }

private:
    // The offset counts from the start of the message, the place from behind its header.
    [[noreturn]] static void refuse(std::size_t offset, const std::string& problem) {
        throw Error(Status::invalid, "byte " + std::to_string(offset) + ": " + problem);
    }
    [[noreturn]] static void fail(std::size_t place, const std::string& problem) { refuse(place + sizeof(header), problem); }
    [[noreturn]] void early_end(const char* what, std::size_t size) const {
        fail(at_, std::string("expected ") + what + " (" + std::to_string(size) + " bytes), found the end after " +
                      std::to_string(remaining()) + " bytes");
    }

    const std::uint8_t* begin_;
    std::size_t size_;
    std::size_t at_ = 0;
    unsigned depth_ = 0;
    bool swapped_ = false;
};

}  // namespace thalweg::cdr

#endif
