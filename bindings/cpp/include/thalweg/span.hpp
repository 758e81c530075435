// A view of elements that lie one behind the other: std::span for C++17. C++20 converts it to std::span.
#ifndef THALWEG_SPAN_HPP
#define THALWEG_SPAN_HPP

#include <cstddef>
#include <type_traits>
#include <utility>

#if __cplusplus >= 202002L && __has_include(<ranges>)
#include <ranges>
#endif

namespace thalweg {

// Elements of `T` that belong to somebody else: valid as long as their owner leaves them where they are.
template <class T>
class Span {
public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using pointer = T*;
    using reference = T&;
    using iterator = T*;

    constexpr Span() noexcept = default;
    constexpr Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}

    template <std::size_t N>
    constexpr Span(T (&array)[N]) noexcept : data_(array), size_(N) {}

    // Any container that has its elements one behind the other: std::vector, std::array, std::string, std::span, another Span.
    template <class C, class P = decltype(std::declval<C&>().data()),
              class = std::enable_if_t<!std::is_same_v<std::decay_t<C>, Span> &&
                                       std::is_convertible_v<std::remove_pointer_t<P> (*)[], T (*)[]>>>
    constexpr Span(C&& container) noexcept(noexcept(container.size()))
        : data_(container.data()), size_(container.size()) {}

    constexpr T* data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T* begin() const noexcept { return data_; }
    constexpr T* end() const noexcept { return data_ + size_; }
    constexpr T& operator[](std::size_t index) const noexcept { return data_[index]; }

    // The elements from `start` on, at most `count`; what is beyond the end is left out.
    constexpr Span subspan(std::size_t start, std::size_t count = static_cast<std::size_t>(-1)) const noexcept {
        const std::size_t from = start < size_ ? start : size_;
        return {data_ + from, count < size_ - from ? count : size_ - from};
    }

private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace thalweg

#if __cplusplus >= 202002L && __has_include(<ranges>)
template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<thalweg::Span<T>> = true;
template <class T>
inline constexpr bool std::ranges::enable_view<thalweg::Span<T>> = true;
#endif

#endif
