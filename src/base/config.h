// Strict reading of YAML configuration: plans, catalogues, routing files, scenario files.
//
// A Document is parsed text; a Value is a place in it, present or not. Typed getters read a value
// and, when it is wrong, record a message and return a harmless one, so a reader is a straight list
// of assignments and one run names every mistake:
//
//   TARE_TRY(config::Document document, config::Document::Load(path));
//   config::Value root = document.root();
//   plan.name = root["name"].String();                       // required
//   plan.users = root["users"].IntOr(8, 1, 10'000);          // optional
//   for (config::Value item : root["candidates"].List()) ...
//   TARE_RETURN_IF_ERROR(document.Finish());                 // every mistake, by line
//
// A key that was never asked for is a mistake too ("unknown key 'duraton', did you mean
// 'duration'?"), so the code that reads a file is its schema. Duplicate keys are refused, and so
// are several documents in one file. Messages read "plan.yaml:12: candidates[1].dtype: ...".
//
// Hostile text is safe: size, nesting depth and the number of values after aliases are expanded
// are capped, text must be UTF-8, and yaml-cpp's exceptions end here.
//
// Ownership: a Document owns everything; Values are cheap handles that must not outlive it.
// Thread safety: none; a Document is read by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace tare::config {

// A megabyte of YAML is far more than any plan; deeper nesting than 32 is not one of ours.
inline constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
inline constexpr int kMaxDepth = 32;
inline constexpr std::size_t kMaxValues = 200'000;

namespace internal {
struct Node;
struct State;
}  // namespace internal

class Value {
 public:
  // Whether the key exists (an explicit `key:` without a value counts as present).
  bool present() const { return node_ != nullptr; }
  bool is_map() const;
  bool is_list() const;
  // Where it is: "candidates[1].dtype", and its line (of the parent when absent), from 1.
  const std::string& path() const { return path_; }
  int line() const { return line_; }

  // The value of `key` in a map. Asking makes the key known. On anything but a map this records a
  // mistake once and gives an absent value.
  Value operator[](std::string_view key) const;

  // Items of a list; a missing list is a mistake, ListOrEmpty accepts it.
  std::vector<Value> List() const;
  std::vector<Value> ListOrEmpty() const;
  // Entries of a map whose keys are names chosen by the writer, in file order.
  std::vector<std::pair<std::string, Value>> Entries() const;
  std::vector<std::pair<std::string, Value>> EntriesOrEmpty() const;
  // The whole subtree as JSON (plain scalars become numbers and booleans where they read so);
  // null when absent.
  nlohmann::json Json() const;

  // Required scalars. Bounds are inclusive.
  std::string String() const;
  bool Bool() const;
  std::int64_t Int(std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                   std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  double Number(double min = -std::numeric_limits<double>::max(),
                double max = std::numeric_limits<double>::max()) const;
  Nanos Duration() const;          // "500ms", see base/units.h for these five
  std::uint64_t ByteSize() const;  // "16GiB"
  double RatePerSecond() const;    // "12/s"
  double Fraction() const;         // "85%"
  double UsdPerHour() const;       // "0.12/h"

  // The same for optional keys.
  std::string StringOr(std::string_view fallback) const;
  bool BoolOr(bool fallback) const;
  std::int64_t IntOr(std::int64_t fallback,
                     std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                     std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  double NumberOr(double fallback, double min = -std::numeric_limits<double>::max(),
                  double max = std::numeric_limits<double>::max()) const;
  Nanos DurationOr(Nanos fallback) const;
  std::uint64_t ByteSizeOr(std::uint64_t fallback) const;
  double RatePerSecondOr(double fallback) const;
  double FractionOr(double fallback) const;
  double UsdPerHourOr(double fallback) const;

  // One of the named values: Choice<Dtype>({{"f32", Dtype::kF32}, {"bf16", Dtype::kBf16}}).
  template <typename T>
  using Names = std::vector<std::pair<std::string, T>>;
  template <typename T>
  T Choice(const Names<T>& names) const {
    return names[PickRequired(NamesOf(names))].second;
  }
  template <typename T>
  T ChoiceOr(T fallback, const Names<T>& names) const {
    return present() ? Choice(names) : fallback;
  }

  // Records a mistake about this place: value.AddError("two candidates are named '{}'", name).
  template <typename... Args>
  void AddError(fmt::format_string<Args...> format, Args&&... args) const {
    Record(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  friend class Document;
  Value(internal::State* state, internal::Node* node, std::string path, int line)
      : state_(state), node_(node), path_(std::move(path)), line_(line) {}

  // The scalar's text, or null after recording why there is none.
  const std::string* Scalar(const char* expected) const;
  template <typename T>
  T Parsed(const char* expected, Result<T> (*parse)(std::string_view)) const;
  void Record(std::string message) const;
  std::size_t PickRequired(const std::vector<std::string>& names) const;
  template <typename T>
  static std::vector<std::string> NamesOf(const Names<T>& names) {
    std::vector<std::string> result;
    for (const auto& [name, value] : names) result.push_back(name);
    return result;
  }

  internal::State* state_;
  internal::Node* node_;  // null when absent
  std::string path_;
  int line_;
};

class Document {
 public:
  // `source` is the name used in messages, usually the file's.
  static Result<Document> Parse(std::string_view text, std::string source);
  static Result<Document> Load(const std::filesystem::path& path);
  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;
  ~Document();

  Value root() const;

  // Call after reading: fails with every recorded mistake and every unknown key, by line, one a
  // line of the message (the first 20). Error::param is the path of the first.
  Status Finish() const;

 private:
  explicit Document(std::unique_ptr<internal::State> state);
  std::unique_ptr<internal::State> state_;
};

}  // namespace tare::config
