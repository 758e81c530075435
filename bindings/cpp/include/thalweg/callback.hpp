// Functions of the user that the library's threads call. What they throw ends here, and is reported.
#ifndef THALWEG_CALLBACK_HPP
#define THALWEG_CALLBACK_HPP

#include <thalweg/cdr.hpp>
#include <thalweg/error.hpp>
#include <thalweg/message.hpp>
#include <thalweg/sample.hpp>
#include <thalweg/span.hpp>

#include <thalweg.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace thalweg {

// Told what a callback threw, or why a message could not be decoded for it, on the thread of the callback.
using ErrorHandler = std::function<void(const std::exception&)>;

// Where errors of one port's callbacks go: to the user's handler, or to standard error.
class Reporter {
public:
    Reporter(std::string port, ErrorHandler handler) : port_(std::move(port)), handler_(std::move(handler)) {}

    // Runs `work`, and reports what it throws.
    template <class F>
    void guard(F&& work) const noexcept {
        try {
            work();
        } catch (const std::exception& thrown) {
            report(thrown);
        } catch (...) {
            report(Error(Status::invalid, "what was thrown is no std::exception"));
        }
    }

private:
    void report(const std::exception& thrown) const noexcept {
        try {
            if (handler_) return handler_(thrown);
            std::fprintf(stderr, "thalweg: a callback of %s failed: %s\n", port_.c_str(), thrown.what());
        } catch (...) {
            std::fprintf(stderr, "thalweg: the error handler of %s failed\n", port_.c_str());
        }
    }

    std::string port_;
    ErrorHandler handler_;
};

// A callback for samples of `T`, with the memory into which they are decoded. The library frees it by `release`.
template <class T, class F>
class Callback {
public:
    Callback(F callback, Reporter reporter) : callback_(std::move(callback)), reporter_(std::move(reporter)) {}

    static void call(const thalweg_sample* shown, void* user) noexcept {
        auto& self = *static_cast<Callback*>(user);
        self.reporter_.guard([&] {
            Sample<T> sample(shown, std::move(self.held_));
            const Keeper keeper{self, sample};
            self.callback_(std::as_const(sample));
        });
    }

    static void release(void* user) noexcept { delete static_cast<Callback*>(user); }

private:
    // Takes back the sample's memory, also when the callback throws.
    struct Keeper {
        Callback& self;
        Sample<T>& sample;
        ~Keeper() { self.held_ = std::move(sample.held_); }
    };

    F callback_;
    Reporter reporter_;
    typename Message<T>::Held held_{};
};

// A function that answers questions of `Q` with an `A`.
template <class Q, class A, class F>
class Answering {
public:
    Answering(F answer, Reporter reporter) : answer_(std::move(answer)), reporter_(std::move(reporter)) {}

    static void call(const thalweg_sample* question, thalweg_reply* reply, void* user) noexcept {
        auto& self = *static_cast<Answering*>(user);
        self.reporter_.guard([&] {
            const Span<const std::uint8_t> asked(static_cast<const std::uint8_t*>(thalweg_sample_data(question)),
                                                 thalweg_sample_len(question));
            cdr::decode_into(asked, self.question_);
            const A answer = self.answer_(std::as_const(self.question_));
            const auto message = cdr::encode_into(answer, self.buffer_);
            check(thalweg_reply_data(reply, message.data(), message.size()));
        });
    }

    static void release(void* user) noexcept { delete static_cast<Answering*>(user); }

private:
    F answer_;
    Reporter reporter_;
    Q question_{};
    std::vector<std::uint8_t> buffer_;
};

}  // namespace thalweg

#endif
