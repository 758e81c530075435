// Schemas: the structure of a type as text (JSON), by which ports in all languages compare it.
#ifndef THALWEG_SCHEMA_HPP
#define THALWEG_SCHEMA_HPP

#include <thalweg/codec.hpp>
#include <thalweg/error.hpp>
#include <thalweg/fields.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace thalweg::schema {

// The deepest nesting that ports accept.
inline constexpr unsigned max_levels = 32;

// The name of a type without parts.
template <class T>
constexpr const char* simple_name() {
    static_assert(std::is_same_v<T, bool> || std::is_same_v<T, std::string> || cdr::is_number<T>,
                  "thalweg: no message has a field of this type. Name the fields of a struct with THALWEG_STRUCT, in its namespace");
    if constexpr (std::is_same_v<T, bool>) {
        return "bool";
    } else if constexpr (std::is_same_v<T, std::string>) {
        return "string";
    } else if constexpr (std::is_floating_point_v<T>) {
        return sizeof(T) == 4 ? "f32" : "f64";
    } else if constexpr (std::is_signed_v<T>) {
        return sizeof(T) == 1 ? "i8" : sizeof(T) == 2 ? "i16" : sizeof(T) == 4 ? "i32" : "i64";
    } else {
        return sizeof(T) == 1 ? "u8" : sizeof(T) == 2 ? "u16" : sizeof(T) == 4 ? "u32" : "u64";
    }
}

template <class T>
std::string of(unsigned level = 1);

// A number, text or truth value, or a struct.
template <class T>
struct Part {
    static std::string text(unsigned level) {
        if constexpr (fields::is_listed<T>) {
            std::string all;
            fields::visit<T>([&](const auto& field) {
                using M = typename std::decay_t<decltype(field)>::type;
                if (!all.empty()) all += ',';
                all += R"({"name":")" + std::string(field.name) + R"(","schema":)" + of<M>(level + 1) + '}';
            });
            return R"({"struct":{"name":")" + std::string(fields::of<T>.name) + R"(","fields":[)" + all + "]}}";
        } else {
            return '"' + std::string(simple_name<T>()) + '"';
        }
    }
};

template <class T, class A>
struct Part<std::vector<T, A>> {
    static std::string text(unsigned level) { return R"({"sequence":)" + of<T>(level + 1) + '}'; }
};

template <class T, std::size_t N>
struct Part<std::array<T, N>> {
    static std::string text(unsigned level) {
        return R"({"array":{"len":)" + std::to_string(N) + R"(,"element":)" + of<T>(level + 1) + "}}";
    }
};

// The schema of `T`.
template <class T>
std::string of(unsigned level) {
    if (level > max_levels) {
        throw Error(Status::invalid, "the type has more than 32 levels, or contains itself; refer to other values by an index");
    }
    return Part<T>::text(level);
}

}  // namespace thalweg::schema

#endif
