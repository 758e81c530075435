// Types that a message can have: numbers, bool, std::string, std::vector, std::array, and structs named by THALWEG_STRUCT.
//
// Where the memory of a value is its encoding (no padding, no bool, every field in its place), it is copied as a whole.
#ifndef THALWEG_CODEC_HPP
#define THALWEG_CODEC_HPP

#include <thalweg/decode.hpp>
#include <thalweg/encode.hpp>
#include <thalweg/fields.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg::cdr {

// Encoding and decoding of a `T`:
//   least             the fewest bytes that a value takes
//   dense             `true` if the memory may be the encoding, wherever `alignment` is kept
//   alignment, first  that of the whole in memory, and that of its first number; of dense types
//   in_place          whether the fields of a dense value lie in the order of their list
template <class T, class = void>
struct Codec {
    static_assert(!std::is_same_v<T, T>,
                  "thalweg: no message has a field of this type. Take std::int8_t to std::uint64_t, float, double, bool, "
                  "std::string, std::vector, std::array, or name the fields of a struct with THALWEG_STRUCT");
};

template <class T>
inline constexpr bool is_character = std::is_same_v<T, char> || std::is_same_v<T, wchar_t> ||
                                     std::is_same_v<T, char16_t> || std::is_same_v<T, char32_t>;

template <class T>
inline constexpr bool is_number =
    (std::is_integral_v<T> && !std::is_same_v<T, bool> && !is_character<T> && sizeof(T) <= 8) ||
    std::is_same_v<T, float> || std::is_same_v<T, double>;

// Writes or reads a dense value that lies at the right place in the message as one piece; `false`: it does not.
template <class T, class Sink>
bool write_dense(Sink& sink, const T* values, std::size_t count) {
    if (!little_endian || !Codec<T>::in_place(*values)) return false;
    sink.align(Codec<T>::first);
    if (sink.at() % Codec<T>::alignment != 0) return false;
    sink.raw(values, count * sizeof(T));
    return true;
}

template <class T>
bool read_dense(Reader& reader, T* values, std::size_t count) {
    if (reader.swapped() || !Codec<T>::in_place(*values)) return false;
    reader.align(Codec<T>::first, "a number");
    if (reader.at() % Codec<T>::alignment != 0) return false;
    std::memcpy(static_cast<void*>(values), reader.raw(count * sizeof(T), "numbers"), count * sizeof(T));
    return true;
}

template <class T>
struct Codec<T, std::enable_if_t<is_number<T>>> {
    static constexpr std::size_t least = sizeof(T);
    static constexpr bool dense = alignof(T) == sizeof(T);
    static constexpr std::size_t alignment = sizeof(T);
    static constexpr std::size_t first = sizeof(T);
    static bool in_place(const T&) noexcept { return true; }

    template <class Sink>
    static void write(Sink& sink, T value) {
        sink.number(value);
    }
    static void read(Reader& reader, T& value) { value = reader.number<T>("a number"); }
};

template <>
struct Codec<bool> {
    static constexpr std::size_t least = 1;
    static constexpr bool dense = false;
    static constexpr std::size_t alignment = 1;
    static constexpr std::size_t first = 1;

    template <class Sink>
    static void write(Sink& sink, bool value) {
        sink.number(static_cast<std::uint8_t>(value));
    }
    static void read(Reader& reader, bool& value) { value = reader.boolean(); }
};

template <>
struct Codec<std::string> {
    static constexpr std::size_t least = 4;
    static constexpr bool dense = false;
    static constexpr std::size_t alignment = 1;
    static constexpr std::size_t first = 1;

    template <class Sink>
    static void write(Sink& sink, const std::string& value) {
        sink.text(value);
    }
    static void read(Reader& reader, std::string& value) { reader.text(value); }
};

template <class T, std::size_t N>
struct Codec<std::array<T, N>> {
    static_assert(N > 0, "thalweg: an array of a message has at least one element");
    static constexpr std::size_t least = N * Codec<T>::least;
    static constexpr bool dense = Codec<T>::dense;
    static constexpr std::size_t alignment = Codec<T>::alignment;
    static constexpr std::size_t first = Codec<T>::first;
    static bool in_place(const std::array<T, N>& value) noexcept { return Codec<T>::in_place(value[0]); }

    template <class Sink>
    static void write(Sink& sink, const std::array<T, N>& value) {
        sink.enter();
        bool written = false;
        if constexpr (dense) written = write_dense(sink, value.data(), N);
        if (!written) {
            for (const T& element : value) Codec<T>::write(sink, element);
        }
        sink.leave();
    }
    static void read(Reader& reader, std::array<T, N>& value) {
        reader.enter();
        bool found = false;
        if constexpr (dense) found = read_dense(reader, value.data(), N);
        if (!found) {
            for (T& element : value) Codec<T>::read(reader, element);
        }
        reader.leave();
    }
};

template <class T, class A>
struct Codec<std::vector<T, A>> {
    static constexpr std::size_t least = 4;
    static constexpr bool dense = false;
    static constexpr std::size_t alignment = 1;
    static constexpr std::size_t first = 1;

    template <class Sink>
    static void write(Sink& sink, const std::vector<T, A>& value) {
        sink.enter();
        sink.length(value.size());
        bool written = value.empty();
        if constexpr (Codec<T>::dense) written = written || write_dense(sink, value.data(), value.size());
        if (!written) {
            for (const auto& element : value) Codec<T>::write(sink, element);
        }
        sink.leave();
    }

    static void read(Reader& reader, std::vector<T, A>& value) {
        const std::size_t count = reader.count(Codec<T>::least);
        reader.enter();
        value.clear();
        if (count > 0) read_elements(reader, value, count);
        reader.leave();
    }

private:
    static void read_elements(Reader& reader, std::vector<T, A>& value, std::size_t count) {
        if constexpr (std::is_same_v<T, std::uint8_t>) {  // one copy, and no zeros beforehand
            const std::uint8_t* bytes = reader.raw(count, "the bytes of a sequence");
            value.assign(bytes, bytes + count);
        } else if constexpr (Codec<T>::dense) {
            value.resize(count);
            if (read_dense(reader, value.data(), count)) return;
            for (T& element : value) Codec<T>::read(reader, element);
        } else {
            value.reserve(count);
            for (std::size_t left = count; left > 0; --left) {
                T element{};
                Codec<T>::read(reader, element);
                value.push_back(std::move(element));
            }
        }
    }
};

// Facts about the fields of a struct, from all of which its own follow.
template <class T>
struct Layout {
    std::size_t least = 0;
    std::size_t alignment = 1;
    std::size_t first = 0;
    bool dense = std::is_trivially_copyable_v<T>;

    template <class M>
    constexpr void add() {
        if constexpr (Codec<M>::dense) {
            dense = dense && least % Codec<M>::alignment == 0;
            alignment = alignment < Codec<M>::alignment ? Codec<M>::alignment : alignment;
            first = first == 0 ? Codec<M>::first : first;
        } else {
            dense = false;
        }
        least += Codec<M>::least;
    }

    static constexpr Layout of() {
        Layout layout;
        fields::visit<T>([&](const auto& field) { layout.template add<typename std::decay_t<decltype(field)>::type>(); });
        layout.dense = layout.dense && layout.least == sizeof(T) && sizeof(T) % layout.alignment == 0;
        return layout;
    }
};

template <class T>
struct Codec<T, std::enable_if_t<fields::is_listed<T>>> {
    static_assert(fields::is_complete<T>(), "thalweg: THALWEG_STRUCT names fewer fields than the struct has");

    static constexpr Layout<T> layout = Layout<T>::of();
    static constexpr std::size_t least = layout.least;
    static constexpr bool dense = layout.dense;
    static constexpr std::size_t alignment = layout.alignment;
    static constexpr std::size_t first = layout.first;

    // Compiled, a constant.
    static bool in_place(const T& value) noexcept {
        const auto* begin = reinterpret_cast<const std::uint8_t*>(&value);
        std::size_t expected = 0;
        bool all = true;
        fields::visit<T>([&](const auto& field) {
            using M = typename std::decay_t<decltype(field)>::type;
            const M& member = value.*(field.place);
            all = all && reinterpret_cast<const std::uint8_t*>(&member) == begin + expected && Codec<M>::in_place(member);
            expected += sizeof(M);
        });
        return all;
    }

    template <class Sink>
    static void write(Sink& sink, const T& value) {
        sink.enter();
        bool written = false;
        if constexpr (dense) written = write_dense(sink, &value, 1);
        if (!written) {
            fields::visit<T>([&](const auto& field) {
                Codec<typename std::decay_t<decltype(field)>::type>::write(sink, value.*(field.place));
            });
        }
        sink.leave();
    }

    static void read(Reader& reader, T& value) {
        reader.enter();
        bool found = false;
        if constexpr (dense) found = read_dense(reader, &value, 1);
        if (!found) {
            fields::visit<T>([&](const auto& field) {
                Codec<typename std::decay_t<decltype(field)>::type>::read(reader, value.*(field.place));
            });
        }
        reader.leave();
    }
};

}  // namespace thalweg::cdr

#endif
