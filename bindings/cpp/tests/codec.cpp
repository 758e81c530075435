// Decodes and encodes messages for tests/cpp.rs. It reads lines `TYPE HEX`, and answers `ok HEX VALUE`, or `error TEXT`.

#include "messages.hpp"

#include <thalweg/cdr.hpp>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using Bytes = std::vector<std::uint8_t>;

std::string hex(const std::uint8_t* bytes, std::size_t size) {
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < size; ++i) {
        text += digits[bytes[i] >> 4];
        text += digits[bytes[i] & 15];
    }
    return text;
}

Bytes unhex(const std::string& text) {
    Bytes bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
    return bytes;
}

// The values themselves, so that an error of the decoder is not undone by the encoder: floats by their bits, texts by their bytes.
template <class T>
std::string show(const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
        std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t> bits;
        std::memcpy(&bits, &value, sizeof(T));
        return std::to_string(bits);
    } else if constexpr (std::is_integral_v<T>) {
        return std::to_string(+value);
    } else if constexpr (std::is_same_v<T, std::string>) {
        return "'" + hex(reinterpret_cast<const std::uint8_t*>(value.data()), value.size()) + "'";
    } else if constexpr (thalweg::fields::is_listed<T>) {
        std::string text = "(";
        thalweg::fields::visit<T>([&](const auto& field) { text += show(value.*(field.place)) + ","; });
        return text + ")";
    } else {
        std::string text = "[";
        for (const auto& element : value) text += show<typename T::value_type>(element) + ",";
        return text + "]";
    }
}

template <class T>
std::string answer(const Bytes& message) {
    // As long as the message, so that a sanitizer sees every byte that is read beyond it.
    const std::vector<std::uint8_t> exact(message);
    T value{};
    thalweg::cdr::decode_into<T>(exact, value);
    const Bytes again = thalweg::cdr::encode(value);
    return "ok " + hex(again.data(), again.size()) + " " + show(value);
}

std::string answer(const std::string& type, const Bytes& message) {
    if (type == "Vector3") return answer<robot::Vector3>(message);
    if (type == "Stamp") return answer<robot::Stamp>(message);
    if (type == "Padded") return answer<robot::Padded>(message);
    if (type == "Turned") return answer<robot::Turned>(message);
    if (type == "Everything") return answer<robot::Everything>(message);
    if (type == "Nested") return answer<robot::Nested>(message);
    if (type == "Tree") return answer<robot::Tree>(message);
    if (type == "Wide") return answer<robot::Wide>(message);
    if (type == "text") return answer<std::string>(message);
    if (type == "numbers") return answer<std::vector<double>>(message);
    return "error no type " + type;
}

}  // namespace

int main() {
    // Which types have their encoding in memory is a matter of speed, so no result would show it.
    using thalweg::cdr::Codec;
    static_assert(Codec<robot::Vector3>::dense && Codec<robot::Stamp>::dense && Codec<robot::Turned>::dense && Codec<robot::Wide>::dense);
    static_assert(!Codec<robot::Padded>::dense && !Codec<robot::Everything>::dense && !Codec<bool>::dense);
    if (!Codec<robot::Vector3>::in_place({}) || Codec<robot::Turned>::in_place({})) return 1;

    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string type, digits;
        words >> type >> digits;
        try {
            std::cout << answer(type, unhex(digits)) << std::endl;
        } catch (const thalweg::Error& error) {
            std::cout << "error " << error.what() << std::endl;
        }
    }
}
