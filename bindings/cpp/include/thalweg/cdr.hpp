// CDR, as ROS 2 puts it on the wire: the same bytes as Rust's codec writes, which reads them as well.
#ifndef THALWEG_CDR_HPP
#define THALWEG_CDR_HPP

#include <thalweg/codec.hpp>
#include <thalweg/span.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace thalweg::cdr {

// The length of a value's message, header included. Throws Error for a string that is not UTF-8, or a length beyond 32 bits.
template <class T>
std::size_t size(const T& value) {
    Counter counter;
    Codec<T>::write(counter, value);
    return sizeof(header) + counter.at();
}

// Writes the message of a value into memory of exactly `size(value)` bytes.
template <class T>
void fill(const T& value, std::uint8_t* message) noexcept {
    std::memcpy(message, header, sizeof(header));
    Filler filler(message + sizeof(header));
    Codec<T>::write(filler, value);
}

// The message of a value, in a buffer that keeps its memory for the next one.
template <class T>
Span<const std::uint8_t> encode_into(const T& value, std::vector<std::uint8_t>& buffer) {
    const std::size_t length = cdr::size(value);
    if (buffer.size() < length) buffer.resize(length);
    cdr::fill(value, buffer.data());
    return {buffer.data(), length};
}

// The message of a value.
template <class T>
std::vector<std::uint8_t> encode(const T& value) {
    std::vector<std::uint8_t> message(cdr::size(value));
    cdr::fill(value, message.data());
    return message;
}

// Reads a value from exactly one message. Throws Error with the offset, what was expected and what was found; `value` is
// then partly read.
template <class T>
void decode_into(Span<const std::uint8_t> message, T& value) {
    Reader reader(message);
    Codec<T>::read(reader, value);
    reader.finish();
}

// As decode_into.
template <class T>
T decode(Span<const std::uint8_t> message) {
    T value{};
    decode_into(message, value);
    return value;
}

}  // namespace thalweg::cdr

#endif
