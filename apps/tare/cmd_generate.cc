// tare generate: one completion on the terminal, with tokens per second.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/tare/commands.h"
#include "apps/tare/local_model_flags.h"
#include "base/units.h"
#include "engine/local_model.h"
#include "engine/waiting_sink.h"

namespace tare::app {
namespace {

struct Arguments {
  LocalModelFlags model;
  std::string prompt;
  std::string system;
  bool raw = false;
  bool json = false;
  int max_tokens = 256;
  std::optional<float> temperature, top_p, min_p;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

// Prints text as it comes.
class TerminalSink final : public engine::WaitingSink {
 public:
  explicit TerminalSink(bool print) : print_(print) {}

  void OnTokens(engine::GenerateChunk chunk) override {
    if (print_) {
      std::fwrite(chunk.text.data(), 1, chunk.text.size(), stdout);
      std::fflush(stdout);
    }
    text_ += chunk.text;
    if (chunk.finish != engine::FinishReason::kNone) finish_ = chunk.finish;
  }
  // Valid after Wait.
  const std::string& text() const { return text_; }
  engine::FinishReason finish() const { return finish_; }

 private:
  bool print_;
  std::string text_;
  engine::FinishReason finish_ = engine::FinishReason::kNone;
};

Result<std::vector<TokenId>> Encode(const model::Text& text, const Arguments& arguments) {
  if (arguments.raw || text.chat_template() == nullptr) return text.EncodePrompt(arguments.prompt);
  nlohmann::json messages = nlohmann::json::array();
  if (!arguments.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", arguments.system}});
  }
  messages.push_back({{"role", "user"}, {"content", arguments.prompt}});
  const std::string json = messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  model::ChatInput input;
  input.messages_json = json;
  input.now = std::chrono::system_clock::now();
  return text.EncodeChat(input);
}

int Run(const Arguments& arguments) {
  auto options = arguments.model.ToOptions();
  if (!options) return Report(options.error());
  options->engine.batch_window = Nanos{};  // one request: nobody to wait for
  options->engine.max_num_seqs = 1;
  auto local = engine::LoadLocalModel(*std::move(options));
  if (!local) return Report(local.error());

  const model::SamplingAdvice& advice = local->text->sampling();
  engine::GenerateRequest request;
  auto prompt = Encode(*local->text, arguments);
  if (!prompt) return Report(prompt.error());
  request.prompt = *std::move(prompt);
  request.max_new_tokens = arguments.max_tokens;
  request.ignore_eos = arguments.ignore_eos;
  request.stop = arguments.stop;
  request.seed = arguments.seed;
  const auto choose = [](const auto& own, const auto& advised, auto otherwise) {
    return own ? *own : advised ? *advised : otherwise;
  };
  request.sampling.temperature = choose(arguments.temperature, advice.temperature, 1.0f);
  request.sampling.top_p = choose(arguments.top_p, advice.top_p, 1.0f);
  request.sampling.top_k = choose(arguments.top_k, advice.top_k, 0);
  request.sampling.min_p = choose(arguments.min_p, advice.min_p, 0.0f);

  auto sink = std::make_shared<TerminalSink>(!arguments.json);
  if (auto handle = local->engine->Submit(std::move(request), sink); !handle) {
    return Report(handle.error());
  }
  if (Status ended = sink->Wait(); !ended) return Report(ended.error());

  const engine::GenerateUsage& usage = sink->usage();
  const double prefill_s = ToSeconds(usage.first_token - usage.queued);
  const double decode_s = ToSeconds(usage.total - usage.first_token);
  const double prefill_rate =
      prefill_s > 0 ? (usage.prompt_tokens - usage.cached_tokens) / prefill_s : 0;
  const double decode_rate =
      decode_s > 0 ? static_cast<double>(usage.generated_tokens - 1) / decode_s : 0;
  if (arguments.json) {
    const nlohmann::json document = {{"model", local->name},
                                     {"dtype", kernels::ToString(local->dtype)},
                                     {"text", sink->text()},
                                     {"finish_reason", engine::ToString(sink->finish())},
                                     {"usage",
                                      {{"prompt_tokens", usage.prompt_tokens},
                                       {"completion_tokens", usage.generated_tokens},
                                       {"drafted_tokens", usage.drafted_tokens},
                                       {"accepted_drafts", usage.accepted_drafts}}},
                                     {"timing",
                                      {{"ttft_s", ToSeconds(usage.first_token)},
                                       {"total_s", ToSeconds(usage.total)},
                                       {"prefill_tokens_per_s", prefill_rate},
                                       {"decode_tokens_per_s", decode_rate}}}};
    std::printf("%s\n",
                document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return kSuccess;
  }
  std::printf("\n");
  std::fflush(stdout);
  std::fprintf(stderr,
               "\n%d prompt tokens at %.1f tokens/s, first token after %s; %d tokens at %.1f "
               "tokens/s (%s)\n",
               usage.prompt_tokens, prefill_rate, FormatDuration(usage.first_token).c_str(),
               usage.generated_tokens, decode_rate, engine::ToString(sink->finish()));
  if (usage.drafted_tokens > 0) {
    std::fprintf(stderr, "%d of %d tokens guessed ahead were right\n", usage.accepted_drafts,
                 usage.drafted_tokens);
  }
  return kSuccess;
}

}  // namespace

void AddGenerate(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("generate", "One completion on the terminal");
  command->footer("Example:\n  tare generate smollm2 -p \"Why is the sky blue?\" --max-tokens 64");
  arguments->model.AddTo(*command);
  command->add_option("-p,--prompt", arguments->prompt, "What to ask")->required();
  command->add_option("--system", arguments->system, "System message of the chat");
  command->add_flag("--raw", arguments->raw, "Continue the prompt as it is, without chat template");
  command->add_option("-n,--max-tokens", arguments->max_tokens, "Tokens to generate at most")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--temperature", arguments->temperature,
                      "0: always the most likely token (default: as the model's authors advise)");
  command->add_option("--top-p", arguments->top_p,
                      "Sample from the likeliest tokens of this share");
  command->add_option("--top-k", arguments->top_k, "Sample from this many likeliest tokens");
  command->add_option("--min-p", arguments->min_p,
                      "Sample from tokens at least this likely, relative to the likeliest");
  command->add_option("--seed", arguments->seed, "Same seed, same answer");
  command->add_option("--stop", arguments->stop, "End the answer before this text (repeatable)");
  command->add_flag("--ignore-eos", arguments->ignore_eos, "Go on past the end-of-text token");
  command->add_flag("--json", arguments->json, "One JSON document on stdout");
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return Run(*arguments); }; });
}

}  // namespace tare::app
