// Prompts and conversations from a file: LoadDataset of prompts.h.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "load/csv.h"
#include "load/prompts.h"
#include "load/random.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr const char* kPromptKeys[] = {"prompt", "text", "question", "instruction"};
constexpr const char* kLengthKeys[] = {"output_tokens", "max_tokens", "output_length",
                                       "output_len"};
constexpr std::int64_t kMostTokens = 1 << 24;

struct Conversation {
  std::string opening;        // system messages, as JSON
  std::vector<Prompt> turns;  // at least one
};

class Dataset final : public PromptSource {
 public:
  Dataset(std::string name, const WorkloadSpec& spec, std::vector<Conversation> conversations)
      : name_(std::move(name)),
        seed_(spec.seed),
        most_turns_(spec.turns),
        conversations_(std::move(conversations)) {}

  Prompt Make(std::uint64_t index) const override { return At(index).turns.front(); }
  int Turns(std::uint64_t index) const override {
    return std::min(most_turns_, static_cast<int>(At(index).turns.size()));
  }
  Prompt MakeTurn(std::uint64_t index, int turn) const override {
    return At(index).turns[static_cast<std::size_t>(turn)];
  }
  std::string Opening(std::uint64_t index) const override { return At(index).opening; }

  json Describe() const override {
    double turns = 0;
    for (const Conversation& c : conversations_) {
      turns += std::min<double>(most_turns_, static_cast<double>(c.turns.size()));
    }
    return {{"kind", "dataset"},
            {"file", name_},
            {"lines", conversations_.size()},
            {"turns", most_turns_},
            {"mean_turns", turns / static_cast<double>(conversations_.size())}};
  }

 private:
  const Conversation& At(std::uint64_t index) const {
    // Without replacement as long as the lines last: in each pass, a step that has no divisor in
    // common with the number of lines visits every line once.
    const std::uint64_t n = conversations_.size();
    const std::uint64_t pass = index / n;
    std::uint64_t step = StreamSeed(seed_, 2 * pass) % n | 1;
    while (std::gcd(step, n) != 1) ++step;
    const std::uint64_t offset = StreamSeed(seed_, 2 * pass + 1) % n;
    return conversations_[(offset + (index % n) * step) % n];
  }

  std::string name_;
  std::uint64_t seed_;
  int most_turns_;
  std::vector<Conversation> conversations_;
};

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

int LengthIn(const json& line) {
  for (const char* key : kLengthKeys) {
    const auto it = line.find(key);
    if (it != line.end() && it->is_number_integer()) {
      return static_cast<int>(std::clamp<std::int64_t>(it->get<std::int64_t>(), 0, kMostTokens));
    }
  }
  return 0;
}

std::string Text(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

Prompt Turn(const json& content, int output_tokens) {
  Prompt prompt;
  prompt.content_json = Dump(content);
  prompt.output_tokens = output_tokens;
  return prompt;
}

// "messages" as the API has them. Single-turn: all of it is the prompt. Sessions: the user's
// messages are the turns, what stands before the first is the opening.
std::optional<Conversation> FromMessages(const json& messages, int output_tokens, bool sessions) {
  Conversation conversation;
  if (!sessions) {
    Prompt prompt;
    prompt.messages_json = Dump(messages);
    prompt.output_tokens = output_tokens;
    conversation.turns.push_back(std::move(prompt));
    return conversation;
  }
  for (const json& message : messages) {
    if (!message.is_object() || !message.contains("content")) continue;
    if (Text(message, "role") == "user") {
      conversation.turns.push_back(Turn(message["content"], output_tokens));
    } else if (conversation.turns.empty()) {
      if (!conversation.opening.empty()) conversation.opening += ',';
      conversation.opening += Dump(message);
    }
  }
  if (conversation.turns.empty()) return std::nullopt;
  return conversation;
}

std::optional<Conversation> FromShareGpt(const json& turns, int output_tokens) {
  Conversation conversation;
  for (const json& turn : turns) {
    if (!turn.is_object() || !turn.contains("value") || !turn["value"].is_string()) continue;
    const std::string from = Text(turn, "from");
    if (from == "human" || from == "user") {
      conversation.turns.push_back(Turn(turn["value"], output_tokens));
    } else if (from == "system" && conversation.turns.empty()) {
      conversation.opening = Dump({{"role", "system"}, {"content", turn["value"]}});
    }
  }
  if (conversation.turns.empty()) return std::nullopt;
  return conversation;
}

// Nothing when the object has none of the known shapes.
std::optional<Conversation> FromObject(const json& line, const WorkloadSpec& spec) {
  if (!line.is_object()) return std::nullopt;
  const int told = LengthIn(line);
  const int output_tokens = told > 0 ? told : spec.output_tokens;
  if (const auto it = line.find("messages"); it != line.end() && it->is_array() && !it->empty()) {
    return FromMessages(*it, output_tokens, spec.turns > 1);
  }
  if (const auto it = line.find("conversations"); it != line.end() && it->is_array()) {
    return FromShareGpt(*it, output_tokens);
  }
  for (const char* key : kPromptKeys) {
    if (const auto it = line.find(key); it != line.end() && it->is_string()) {
      return Conversation{{}, {Turn(*it, output_tokens)}};
    }
  }
  return std::nullopt;
}

Error ShapeError(const std::string& where, const json& line) {
  return Error{ErrorKind::kInvalidArgument,
               fmt::format("{}: {}; a request is a JSON object with \"prompt\", \"messages\" or "
                           "\"conversations\"",
                           where, line.is_discarded() ? "not JSON" : "no prompt in it"),
               {},
               {}};
}

Result<std::vector<Conversation>> FromArray(const json& array, const WorkloadSpec& spec) {
  std::vector<Conversation> conversations;
  for (std::size_t i = 0; i < array.size(); ++i) {
    // ShareGPT's files hold conversations nobody began: they are left out, unless nothing remains.
    if (array[i].is_object() && array[i].contains("conversations")) {
      if (auto one = FromObject(array[i], spec)) conversations.push_back(*std::move(one));
      continue;
    }
    std::optional<Conversation> one = FromObject(array[i], spec);
    if (!one) {
      return tl::unexpected(
          ShapeError(fmt::format("{}: entry {}", spec.dataset.string(), i), array[i]));
    }
    conversations.push_back(*std::move(one));
  }
  return conversations;
}

Result<std::vector<Conversation>> FromLines(std::string_view content, const WorkloadSpec& spec) {
  std::vector<Conversation> conversations;
  std::size_t number = 0;
  for (const std::string_view raw : Split(content, '\n')) {
    ++number;
    const std::string_view text = Trim(raw);
    if (text.empty()) continue;
    const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    std::optional<Conversation> one = FromObject(line, spec);
    if (!one) {
      return tl::unexpected(ShapeError(fmt::format("{}:{}", spec.dataset.string(), number), line));
    }
    conversations.push_back(*std::move(one));
  }
  return conversations;
}

Result<std::vector<Conversation>> FromCsv(std::string_view content, const WorkloadSpec& spec) {
  TARE_TRY(const std::vector<std::vector<std::string>> rows, ParseCsv(content));
  const auto column = [&](auto& keys) -> std::optional<std::size_t> {
    for (const char* key : keys) {
      for (std::size_t i = 0; !rows.empty() && i < rows[0].size(); ++i) {
        if (Trim(rows[0][i]) == key) return i;
      }
    }
    return std::nullopt;
  };
  const std::optional<std::size_t> prompt = column(kPromptKeys);
  const std::optional<std::size_t> length = column(kLengthKeys);
  if (!prompt) {
    return Fail(ErrorKind::kInvalidArgument,
                "{}: no column 'prompt' in the first line; a CSV data set needs a header like "
                "prompt,output_tokens",
                spec.dataset.string());
  }
  std::vector<Conversation> conversations;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].size() != rows[0].size()) {
      return Fail(ErrorKind::kInvalidArgument, "{}: row {} has {} fields, the header {}",
                  spec.dataset.string(), i, rows[i].size(), rows[0].size());
    }
    int output_tokens = spec.output_tokens;
    if (length && !Trim(rows[i][*length]).empty()) {
      const Result<std::int64_t> told = ParseInteger(Trim(rows[i][*length]));
      if (!told || *told < 1 || *told > kMostTokens) {
        return Fail(ErrorKind::kInvalidArgument, "{}: row {}: '{}' is no number of tokens",
                    spec.dataset.string(), i, rows[i][*length]);
      }
      output_tokens = static_cast<int>(*told);
    }
    conversations.push_back({{}, {Turn(rows[i][*prompt], output_tokens)}});
  }
  return conversations;
}

}  // namespace

Result<std::unique_ptr<PromptSource>> LoadDataset(const WorkloadSpec& spec) {
  TARE_TRY(const std::string content, ReadFile(spec.dataset));
  std::string_view text = content;
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
  const std::string_view trimmed = Trim(text);
  std::vector<Conversation> conversations;
  if (trimmed.empty()) {
    return Fail(ErrorKind::kInvalidArgument, "data set '{}' is empty", spec.dataset.string());
  }
  if (trimmed.front() == '[') {
    const json array = json::parse(trimmed, nullptr, /*allow_exceptions=*/false);
    if (!array.is_array()) {
      return tl::unexpected(ShapeError(spec.dataset.string(), array));
    }
    TARE_TRY(conversations, FromArray(array, spec));
  } else if (trimmed.front() == '{') {
    TARE_TRY(conversations, FromLines(text, spec));
  } else {
    TARE_TRY(conversations, FromCsv(text, spec));
  }
  if (conversations.empty()) {
    return Fail(ErrorKind::kInvalidArgument, "data set '{}' is empty", spec.dataset.string());
  }
  return std::make_unique<Dataset>(spec.dataset.filename().string(), spec,
                                   std::move(conversations));
}

}  // namespace tare::load
