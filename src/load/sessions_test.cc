#include "load/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "base/files.h"
#include "load/csv.h"
#include "load/runner.h"
#include "net/raw_server.h"

namespace tare::load {
namespace {

using net::RawConnection;
using net::RawServer;
using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string Piece(std::string_view payload) {
  return fmt::format("{:x}\r\n{}\r\n", payload.size(), payload);
}

// A server with a perfect prefix cache. Its answer tells how many messages it was sent; tokens are
// counted as words of the messages' texts.
class CachingServer {
 public:
  explicit CachingServer(int fail_from_turn = 1000)
      : server_([this, fail_from_turn](RawConnection& c, int) {
          while (true) {
            const std::string request = c.ReadRequest();
            if (request.empty()) return;
            const json body = json::parse(request.substr(request.find("\r\n\r\n") + 4), nullptr,
                                          /*allow_exceptions=*/false);
            if (!body.is_object() || !body.contains("messages")) {
              c.Write("HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n");
              continue;
            }
            if (!c.Write(Answer(body, fail_from_turn))) return;
          }
        }) {}

  std::string url() const { return server_.Url(); }
  // Every list of messages of a streamed request, as received.
  std::vector<json> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  static int Words(const json& text) {
    const std::string words = text.get<std::string>();
    return 1 + static_cast<int>(std::count(words.begin(), words.end(), ' '));
  }

  std::string Answer(const json& body, int fail_from_turn) {
    const json& messages = body["messages"];
    int tokens = 0, cached = 0;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      tokens += Words(messages[i]["content"]);
      if (i + 1 < messages.size()) cached += Words(messages[i]["content"]);
    }
    const json usage = {{"prompt_tokens", tokens},
                        {"completion_tokens", 3},
                        {"prompt_tokens_details", {{"cached_tokens", cached}}}};
    if (!body.value("stream", false)) {
      return net::PlainResponse(json{
          {"choices", {{{"message", {{"content", "x"}}}, {"finish_reason", "length"}}}},
          {"usage", usage}}.dump());
    }
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back(messages);
    }
    if (static_cast<int>(messages.size()) / 2 >= fail_from_turn) {
      return "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n";
    }
    std::string text =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        "Transfer-Encoding: chunked\r\n\r\n";
    for (const std::string& word :
         {std::string("I \"got\" "), std::to_string(messages.size()), std::string(" ü")}) {
      text +=
          Piece("data: " + json{{"choices", {{{"delta", {{"content", word}}}}}}}.dump() + "\n\n");
    }
    text += Piece("data: " + json{{"choices", json::array()}, {"usage", usage}}.dump() + "\n\n");
    return text + Piece("data: [DONE]\n\n") + "0\r\n\r\n";
  }

  std::mutex mutex_;  // guards seen_
  std::vector<json> seen_;
  RawServer server_;
};

LoadOptions Options(const std::string& url, int turns) {
  LoadOptions options;
  options.url = url;
  options.model = "m";
  options.arrival.users = 2;
  options.workload.input_tokens = 12;
  options.workload.output_tokens = 3;
  options.workload.turns = turns;
  options.workload.turn_tokens = 4;
  options.workload.seed = 9;
  return options;
}

TEST(Sessions, EachTurnSendsTheConversationWithTheServersOwnAnswers) {
  CachingServer server;
  LoadOptions options = Options(server.url(), 3);
  options.requests = 12;  // four sessions
  const store::RunRecord record = RunLoad(options, nullptr).value();
  EXPECT_EQ(record.summary.ok, 12u);
  std::map<std::size_t, int> by_length;
  for (const json& messages : server.seen()) {
    ++by_length[messages.size()];
    for (std::size_t i = 0; i < messages.size(); ++i) {
      EXPECT_EQ(messages[i]["role"], i % 2 == 0 ? "user" : "assistant");
      if (i % 2 == 1) {
        EXPECT_EQ(messages[i]["content"], fmt::format("I \"got\" {} ü", i));
      }
    }
  }
  EXPECT_EQ(by_length, (std::map<std::size_t, int>{{1, 4}, {3, 4}, {5, 4}}));

  const json& sessions = record.workload["sessions"];
  EXPECT_EQ(sessions["begun"], 4);
  EXPECT_EQ(sessions["complete"], 4);
  ASSERT_EQ(sessions["turns"].size(), 3u);
  EXPECT_EQ(sessions["turns"][0]["cached_share"], 0.0);
  // Turn 2: 12 words asked, 4 answered, 4 asked now: 16 of 20 cached, 12 + 3 told before.
  EXPECT_EQ(sessions["turns"][1]["input_tokens"], 20.0);
  EXPECT_EQ(sessions["turns"][1]["cached_share"], 0.8);
  EXPECT_EQ(sessions["turns"][1]["reusable_share"], 0.75);
  for (const store::ValidityCheck& check : record.checks) {
    if (check.name == "prefix_cache" || check.name == "input_lengths") {
      EXPECT_TRUE(check.ok) << check.detail;
    }
  }
  EXPECT_THAT(SessionTable(record.workload), HasSubstr("80.0 %"));
  EXPECT_THAT(SessionHtml(record.workload), HasSubstr("4 sessions begun, 4 complete"));
}

TEST(Sessions, InTheOpenLoopSessionsArriveAndTurnsFollowAnswers) {
  CachingServer server;
  LoadOptions options = Options(server.url(), 4);
  options.arrival.kind = ArrivalSpec::Kind::kPoisson;
  options.arrival.rate = 200;
  options.arrival.think_time = milliseconds(2);
  options.arrival.think_exponential = true;
  options.requests = 10;  // sessions
  const store::RunRecord record = RunLoad(options, nullptr).value();
  EXPECT_EQ(record.summary.ok, 40u);
  EXPECT_EQ(record.workload["sessions"]["complete"], 10);
  for (const store::ValidityCheck& check : record.checks) {
    if (check.name == "achieved_rate") {
      EXPECT_THAT(check.detail, HasSubstr("10 of 10"));
    }
  }
}

TEST(Sessions, NoneIsCutByTheNumberOfRequests) {
  CachingServer server;
  for (const std::uint64_t requests : {2u, 4u, 7u, 10u}) {
    LoadOptions options = Options(server.url(), 3);
    options.requests = requests;
    const store::RunRecord record = RunLoad(options, nullptr).value();
    const json& sessions = record.workload["sessions"];
    EXPECT_EQ(sessions["begun"], sessions["complete"]);
    EXPECT_EQ(sessions["begun"], (requests + 2) / 3) << requests << " requests";
  }
}

TEST(Sessions, AFailedTurnEndsItsSession) {
  CachingServer server(/*fail_from_turn=*/1);
  LoadOptions options = Options(server.url(), 3);
  options.requests = 8;
  const store::RunRecord record = RunLoad(options, nullptr).value();
  EXPECT_EQ(record.summary.ok, 4u);
  EXPECT_EQ(record.summary.errors_by_kind.at("http_500"), 4u);
  EXPECT_EQ(record.workload["sessions"]["failed"], 4);
  EXPECT_EQ(record.workload["sessions"]["complete"], 0);
}

TEST(Sessions, TheEndOfTheRunCutsThem) {
  CachingServer server;
  LoadOptions options = Options(server.url(), 1000);
  options.duration = milliseconds(200);
  options.warm_up = Nanos(0);
  options.arrival.think_time = milliseconds(20);
  const store::RunRecord record = RunLoad(options, nullptr).value();
  EXPECT_EQ(record.summary.failed, 0u);
  EXPECT_GT(record.summary.ok, 2u);
  EXPECT_EQ(record.workload["sessions"]["begun"], 2);
  EXPECT_EQ(record.workload["sessions"]["complete"], 0);
}

TEST(Sessions, AreRefusedWhereTheyCannotBe) {
  LoadOptions options = Options("http://127.0.0.1:1", 3);
  options.requests = 1;
  options.api = Api::kCompletions;
  EXPECT_THAT(RunLoad(options, nullptr).error().message, HasSubstr("chat"));
  options.api = Api::kChat;
  options.workload.turns = 0;
  EXPECT_THAT(RunLoad(options, nullptr).error().message, HasSubstr("--turns"));
}

class ConversationsTest : public ::testing::Test {
 protected:
  ~ConversationsTest() override { ::unlink(path_.c_str()); }
  Result<std::unique_ptr<PromptSource>> Load(const std::string& content, int turns) {
    EXPECT_TRUE(WriteFileAtomic(path_, content).has_value());
    WorkloadSpec spec;
    spec.dataset = path_;
    spec.turns = turns;
    spec.output_tokens = 7;
    spec.seed = 1;
    return LoadDataset(spec);
  }
  std::string path_ = ::testing::TempDir() + "tare-conversations-" + std::to_string(::getpid());
};

TEST_F(ConversationsTest, ShareGptArrays) {
  const std::string file = R"([{"id":"a","conversations":[{"from":"system","value":"be brief"},)"
                           R"({"from":"human","value":"one"},{"from":"gpt","value":"ignored"},)"
                           R"({"from":"human","value":"two"}]},)"
                           R"({"id":"b","conversations":[{"from":"gpt","value":"nobody asked"}]}])";
  const auto source = Load(file, 10).value();
  EXPECT_EQ(source->Turns(0), 2);
  EXPECT_EQ(source->MakeTurn(0, 0).content_json, "\"one\"");
  EXPECT_EQ(source->MakeTurn(0, 1).content_json, "\"two\"");
  EXPECT_EQ(source->MakeTurn(0, 1).output_tokens, 7);
  EXPECT_EQ(source->Opening(0), R"({"content":"be brief","role":"system"})");
  EXPECT_EQ(Load(file, 1).value()->Turns(0), 1);
  EXPECT_THAT(Load("[1]", 1).error().message, HasSubstr("entry 0"));
  EXPECT_THAT(Load("[", 1).error().message, HasSubstr("not JSON"));
  EXPECT_THAT(Load("[]", 1).error().message, HasSubstr("empty"));
}

TEST_F(ConversationsTest, MessagesBecomeTurns) {
  const auto source = Load(R"({"messages":[{"role":"system","content":"s"},)"
                           R"({"role":"user","content":"one"},{"role":"assistant","content":"x"},)"
                           R"({"role":"user","content":[{"type":"text","text":"two"}]}],)"
                           R"("max_tokens":5})",
                           10)
                          .value();
  EXPECT_EQ(source->Turns(0), 2);
  EXPECT_EQ(source->MakeTurn(0, 1).content_json, R"([{"text":"two","type":"text"}])");
  EXPECT_EQ(source->MakeTurn(0, 1).output_tokens, 5);
  EXPECT_EQ(source->Opening(0), R"({"content":"s","role":"system"})");
}

TEST_F(ConversationsTest, Csv) {
  const auto source = Load("id,prompt,output_tokens\r\n1,\"a, \"\"b\"\"\nc\",3\n2,plain,\n", 1);
  ASSERT_TRUE(source.has_value()) << source.error().message;
  std::map<std::string, int> seen;
  for (std::uint64_t i = 0; i < 2; ++i) {
    seen[(*source)->Make(i).content_json] = (*source)->Make(i).output_tokens;
  }
  EXPECT_EQ(seen, (std::map<std::string, int>{{R"("a, \"b\"\nc")", 3}, {"\"plain\"", 7}}));
  EXPECT_THAT(Load("id,words\n1,x\n", 1).error().message, HasSubstr("no column 'prompt'"));
  EXPECT_THAT(Load("prompt,output_tokens\nx,lots\n", 1).error().message, HasSubstr("lots"));
  EXPECT_THAT(Load("prompt,output_tokens\nx\n", 1).error().message, HasSubstr("1 fields"));
}

// Whatever is written as CSV reads back.
RC_GTEST_PROP(Csv, RoundTrip, (const std::vector<std::string>& cells)) {
  const std::size_t width = *rc::gen::inRange<std::size_t>(1, 4);
  std::vector<std::vector<std::string>> rows;
  std::string text;
  for (std::size_t i = 0; i + width <= cells.size(); i += width) {
    rows.emplace_back();
    for (std::size_t j = 0; j < width; ++j) {
      const std::string& cell = cells[i + j];
      rows.back().push_back(cell);
      text += j > 0 ? ",\"" : "\"";
      for (const char c : cell) text.append(c == '"' ? 2u : 1u, c);
      text += '"';
    }
    text += *rc::gen::element("\n", "\r\n");
  }
  RC_ASSERT(ParseCsv(text).value() == rows);
}

TEST(Csv, NamesWhatIsWrong) {
  EXPECT_THAT(ParseCsv("a\n\"b").error().message, HasSubstr("line 2"));
  EXPECT_THAT(ParseCsv("\"a\"b\n").error().message, HasSubstr("after a closing quote"));
  EXPECT_EQ(ParseCsv("a,b\n\nc,").value(),
            (std::vector<std::vector<std::string>>{{"a", "b"}, {"c", ""}}));
}

}  // namespace
}  // namespace tare::load
