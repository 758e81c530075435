// Fields of structs: THALWEG_STRUCT lists them once, and schema, encoding and decoding follow from the list.
#ifndef THALWEG_FIELDS_HPP
#define THALWEG_FIELDS_HPP

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace thalweg::fields {

// One field: its name and its place in the struct.
template <class T, class M>
struct Field {
    using type = M;
    std::string_view name;
    M T::*place;
};

template <class T, class M>
Field(const char*, M T::*) -> Field<T, M>;

// All fields of the struct `T`, in the order of their bytes.
template <class T, class... F>
struct List {
    using owner = T;
    std::string_view name;
    std::tuple<F...> all;
};

// The name without its path, as types are compared by it.
constexpr std::string_view without_path(std::string_view name) {
    const std::size_t colon = name.rfind(':');
    return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

template <class T, class... F>
constexpr List<T, F...> list(std::string_view name, F... all) {
    return {without_path(name), std::tuple<F...>(all...)};
}

// A struct that is derived from a listed one is not listed by that: it would lose its own fields.
template <class T, class = void>
struct IsListed : std::false_type {};
template <class T>
struct IsListed<T, std::void_t<decltype(thalweg_fields(static_cast<const T*>(nullptr)))>>
    : std::is_same<T, typename decltype(thalweg_fields(static_cast<const T*>(nullptr)))::owner> {};

// `true` if THALWEG_STRUCT names the fields of `T`.
template <class T>
inline constexpr bool is_listed = IsListed<T>::value;

template <class T>
inline constexpr auto of = thalweg_fields(static_cast<const T*>(nullptr));

template <class T>
inline constexpr std::size_t count = std::tuple_size_v<decltype(of<T>.all)>;

// Stands for a value of any type where only the number of values matters.
struct Anything {
    template <class T>
    constexpr operator T() const noexcept;
};

template <class T, class, class = void>
struct Takes : std::false_type {};
template <class T, std::size_t... I>
struct Takes<T, std::index_sequence<I...>, std::void_t<decltype(T{(static_cast<void>(I), Anything{})...})>> : std::true_type {};

// `false` if an aggregate has more fields than its list: the others would be lost on the way.
template <class T>
constexpr bool is_complete() {
    if constexpr (std::is_aggregate_v<T>) {
        return !Takes<T, std::make_index_sequence<count<T> + 1>>::value;
    } else {
        return true;
    }
}

// Calls `each` with every field of `T`.
template <class T, class F>
constexpr void visit(F&& each) {
    std::apply([&](const auto&... field) { (each(field), ...); }, of<T>.all);
}

}  // namespace thalweg::fields

// Names the fields of a struct, 1 to 32, in the order of their bytes. It stands behind the struct, in the same namespace:
//
//     struct Position { double x; double y; };
//     THALWEG_STRUCT(Position, x, y)
#define THALWEG_STRUCT(Type, ...)                                                                             \
    [[maybe_unused]] constexpr auto thalweg_fields(const Type*) noexcept {                                    \
        using ThalwegStruct = Type;                                                                           \
        return ::thalweg::fields::list<Type>(                                                                 \
            #Type, THALWEG_CPP_JOIN(THALWEG_CPP_FIELDS_, THALWEG_CPP_COUNT(__VA_ARGS__))(__VA_ARGS__));       \
    }

#define THALWEG_CPP_FIELD(field) ::thalweg::fields::Field{#field, &ThalwegStruct::field}
#define THALWEG_CPP_JOIN(left, right) THALWEG_CPP_JOIN_EXPANDED(left, right)
#define THALWEG_CPP_JOIN_EXPANDED(left, right) left##right

#define THALWEG_CPP_COUNT(...)                                                                                \
    THALWEG_CPP_LAST_OF_33(__VA_ARGS__, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, \
                           7, 6, 5, 4, 3, 2, 1, 0)
#define THALWEG_CPP_LAST_OF_33(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, \
                               a24, a25, a26, a27, a28, a29, a30, a31, a32, count, ...)                       \
    count

#define THALWEG_CPP_FIELDS_1(field) THALWEG_CPP_FIELD(field)
#define THALWEG_CPP_FIELDS_2(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_1(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_3(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_2(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_4(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_3(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_5(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_4(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_6(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_5(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_7(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_6(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_8(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_7(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_9(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_8(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_10(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_9(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_11(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_10(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_12(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_11(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_13(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_12(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_14(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_13(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_15(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_14(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_16(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_15(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_17(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_16(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_18(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_17(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_19(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_18(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_20(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_19(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_21(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_20(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_22(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_21(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_23(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_22(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_24(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_23(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_25(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_24(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_26(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_25(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_27(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_26(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_28(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_27(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_29(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_28(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_30(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_29(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_31(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_30(__VA_ARGS__)
#define THALWEG_CPP_FIELDS_32(field, ...) THALWEG_CPP_FIELD(field), THALWEG_CPP_FIELDS_31(__VA_ARGS__)

#endif
