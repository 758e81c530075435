// Messages: what a port of each type takes, and what a received sample shows.
//
//   port of           a sample shows
//   any other type    a value, decoded from CDR: structs named by THALWEG_STRUCT, numbers, texts, sequences, arrays
//   Plain<T>          the received memory itself, where it is aligned, else a copy
//   Bytes             the received bytes themselves
//   Encoded           the same; their type is known at run time only
#ifndef THALWEG_MESSAGE_HPP
#define THALWEG_MESSAGE_HPP

#include <thalweg/cdr.hpp>
#include <thalweg/error.hpp>
#include <thalweg/span.hpp>
#include <thalweg/type.hpp>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace thalweg {

// Plain bytes, such as a picture.
struct Bytes {};

// Encoded messages of a type that is known at run time only. A publisher states it by `type` or `ros`; a subscriber without takes any.
struct Encoded {};

// The memory of a `T` without conversion: numbers without padding, or arrays and structs of such. Programs of the same byte order with a type
// of the same name, size and alignment take it.
template <class T>
struct Plain {};

// Publishing and receiving for a type:
//   Value     the value as a user sees it
//   Held      what a sample keeps of it
//   type      its description; none: any
//   encode    the bytes that are published; they may lie in `buffer`
//   receive   looks at received bytes, which outlive what is held
template <class T>
struct Message {
    using Value = T;
    using Held = T;

    static std::optional<Type> type() { return Type::of<T>(); }
    static void receive(Span<const std::uint8_t> data, Held& held) { cdr::decode_into(data, held); }
    static const Value& view(const Held& held) noexcept { return held; }
};

// Bytes that are the message.
struct MessageOfBytes {
    using Value = Span<const std::uint8_t>;
    using Held = Span<const std::uint8_t>;

    static Span<const std::uint8_t> bytes(Value value) noexcept { return value; }
    static void receive(Span<const std::uint8_t> data, Held& held) noexcept { held = data; }
    static const Value& view(const Held& held) noexcept { return held; }
};

template <>
struct Message<Bytes> : MessageOfBytes {
    static std::optional<Type> type() { return Type::bytes(); }
};

template <>
struct Message<Encoded> : MessageOfBytes {
    static std::optional<Type> type() { return std::nullopt; }
};

template <class T>
struct Message<Plain<T>> {
    static_assert(cdr::Codec<T>::dense, "thalweg: a plain type has numbers only and no padding; send others as they are, without Plain");
    using Value = T;

    struct Held {
        const T* received = nullptr;
        T copy{};
    };

    static std::optional<Type> type() { return Type::plain<T>(); }

    static Span<const std::uint8_t> bytes(const Value& value) noexcept {
        return {reinterpret_cast<const std::uint8_t*>(&value), sizeof(T)};
    }

    static void receive(Span<const std::uint8_t> data, Held& held) {
        if (data.size() != sizeof(T)) {
            throw Error(Status::invalid, "expected " + std::to_string(sizeof(T)) + " bytes (one " + Type::plain<T>().name() + "), found " +
                                             std::to_string(data.size()) + " bytes");
        }
        const bool aligned = reinterpret_cast<std::uintptr_t>(data.data()) % alignof(T) == 0;
        held.received = aligned ? reinterpret_cast<const T*>(data.data()) : nullptr;
        if (!aligned) std::memcpy(static_cast<void*>(&held.copy), data.data(), sizeof(T));
    }

    static const Value& view(const Held& held) noexcept { return held.received != nullptr ? *held.received : held.copy; }
};

// `true` if the bytes of a value are its message, so that a loan is written in place.
template <class T>
inline constexpr bool is_memory = false;
template <>
inline constexpr bool is_memory<Bytes> = true;
template <>
inline constexpr bool is_memory<Encoded> = true;
template <class T>
inline constexpr bool is_memory<Plain<T>> = true;

}  // namespace thalweg

#endif
