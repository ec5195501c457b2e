// Streams cut at every byte: what a client reads through the whole gateway is the uncut answer,
// without a seam, or ends with an error event. Never a part that looks whole.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gateway/gateway.h"
#include "gateway/router_fixture.h"
#include "net/http_client.h"
#include "net/http_server.h"

namespace tare::gateway {
namespace {

using nlohmann::json;

constexpr std::size_t kUncut = std::numeric_limits<std::size_t>::max();
// A router retries 100 times before it must have earned more.
constexpr std::size_t kCutsOfBudget = 90;
constexpr int kPrompt = 9;  // tokens of the client's own

enum class Framing { kChunked, kUntilClose };

// A server that knows one answer, as pieces that are its tokens, and goes on with it from any
// prefix. The first requests are cut after as many bytes as `cuts` says.
class Author {
 public:
  Author(std::vector<std::string> pieces, Framing framing)
      : pieces_(std::move(pieces)), framing_(framing) {
    for (const std::string& piece : pieces_) whole_ += piece;
  }
  const std::string& whole() const { return whole_; }
  int tokens() const { return static_cast<int>(pieces_.size()); }

  void Cut(std::vector<std::size_t> cuts) {
    std::lock_guard lock(mutex_);
    cuts_ = std::move(cuts);
    asked_ = 0;
  }
  int asked() const { return asked_.load(); }

  bool Answer(net::RawConnection& connection) {
    const std::string& request = FakeServer::Current();
    const json body = json::parse(request.substr(request.find("\r\n\r\n") + 4));
    const std::string answer = Message(Prefix(body), body.contains("messages"));
    std::size_t cut = kUncut;
    {
      std::lock_guard lock(mutex_);
      const auto number = static_cast<std::size_t>(asked_.fetch_add(1));
      if (number < cuts_.size()) cut = cuts_[number];
    }
    connection.Write(std::string_view(answer).substr(0, cut));
    return cut >= answer.size() && framing_ != Framing::kUntilClose;
  }
  // The bytes of the whole answer.
  std::string Message(const std::string& prefix, bool chat) const {
    const std::vector<std::string> events = Events(prefix, chat);
    std::string body;
    for (const std::string& event : events) {
      body += framing_ == Framing::kChunked ? fmt::format("{:x}\r\n{}\r\n", event.size(), event)
                                            : event;
    }
    const std::string type = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    switch (framing_) {
      case Framing::kChunked:
        return type + "Transfer-Encoding: chunked\r\n\r\n" + body + "0\r\n\r\n";
      case Framing::kUntilClose:
        return type + "Connection: close\r\n\r\n" + body;
    }
    return {};
  }

 private:
  // What the request wants to be gone on from.
  std::string Prefix(const json& body) const {
    if (!body.contains("messages")) return body["prompt"].get<std::string>().substr(1);
    const json& last = body["messages"].back();
    if (!body.value("continue_final_message", false)) return "";
    EXPECT_EQ(body["add_generation_prompt"], false);
    EXPECT_EQ(last["role"], "assistant");
    return last["content"];
  }

  std::vector<std::string> Events(const std::string& prefix, bool chat) const {
    EXPECT_TRUE(whole_.starts_with(prefix)) << prefix;
    std::vector<std::string> events;
    const auto add = [&](const json& event) { events.push_back("data: " + event.dump() + "\n\n"); };
    const auto choice = [&](json delta, json finish) {
      json out = {{"index", 0}, {"finish_reason", std::move(finish)}};
      if (chat) {
        out["delta"] = std::move(delta);
      } else {
        out["text"] = delta.value("content", "");
      }
      add({{"choices", json::array({std::move(out)})}});
    };
    if (chat) choice({{"role", "assistant"}, {"content", ""}}, nullptr);
    std::size_t at = 0;
    int read = 0;
    for (const std::string& piece : pieces_) {
      const std::size_t end = at + piece.size();
      if (end <= prefix.size()) {
        ++read;
      } else {
        choice({{"content",
                 whole_.substr(std::max(at, prefix.size()), end - std::max(at, prefix.size()))}},
               nullptr);
      }
      at = end;
    }
    choice(json::object(), "stop");
    add({{"choices", json::array()},
         {"usage", {{"prompt_tokens", kPrompt + read}, {"completion_tokens", tokens() - read}}}});
    events.push_back("data: [DONE]\n\n");
    return events;
  }

  const std::vector<std::string> pieces_;
  const Framing framing_;
  std::string whole_;
  std::mutex mutex_;  // guards cuts_
  std::vector<std::size_t> cuts_;
  std::atomic<int> asked_{0};
};

// What a client reads.
struct Reading {
  std::string text;
  std::optional<api::Usage> usage;
  int roles = 0;
  bool finished = false, failed = false, done = false;
  bool seamless = true;  // ids, model and time are the same throughout; one role, first
};

Reading Read(const std::string& body) {
  Reading out;
  json first;
  std::size_t at = 0;
  for (std::size_t end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string data = body.substr(at, end - at).substr(6);
    EXPECT_FALSE(out.done || out.failed) << "nothing follows the end: " << data;
    if (data == "[DONE]") {
      out.done = true;
      continue;
    }
    const json event = json::parse(data);
    if (event.contains("error")) {
      out.failed = true;
      EXPECT_EQ(event["error"]["code"], "stream_interrupted");
      continue;
    }
    if (first.is_null()) first = event;
    for (const char* key : {"id", "model", "created", "object"}) {
      out.seamless &= event[key] == first[key];
    }
    if (event.contains("usage") && event["usage"].is_object()) {
      out.usage = api::Usage{event["usage"]["prompt_tokens"], event["usage"]["completion_tokens"]};
    }
    for (const json& choice : event["choices"]) {
      if (choice.contains("delta")) {
        if (choice["delta"].contains("role")) {
          out.seamless &= out.roles++ == 0 && out.text.empty();
        }
        out.text += choice["delta"].value("content", "");
      } else {
        out.text += choice.value("text", "");
      }
      EXPECT_FALSE(out.finished) << "a piece after the finish";
      out.finished = choice.contains("finish_reason") && choice["finish_reason"] == "stop";
    }
  }
  EXPECT_EQ(at, body.size()) << "half an event";
  return out;
}

using Charge = std::pair<std::int64_t, std::int64_t>;  // requests and answer tokens

// A gateway before two servers of one author.
class Desk {
 public:
  Desk(Author* author, bool continues, bool able = true)
      : first_([author](net::RawConnection& c, int) { return author->Answer(c); }),
        second_([author](net::RawConnection& c, int) { return author->Answer(c); }),
        ledger_(*QuotaLedger::Create(nullptr)),
        gateway_(Options()) {
    RouterConfig config;
    config.retry.attempts = 1;
    config.breaker.threshold = 1 << 20;
    for (const FakeServer* server : {&first_, &second_}) {
      UpstreamConfig& upstream = config.upstreams.emplace_back();
      upstream.remote.name = server == &first_ ? "first" : "second";
      upstream.remote.url = server->url();
      upstream.assistant_prefix = able;
    }
    RouteConfig& route = config.routes.emplace_back();
    route.model = "m";
    route.targets = {{"first", "m", 0}, {"second", "m", 0}};
    route.continue_cut_streams = continues;
    auto router = Router::Create(std::move(config));
    EXPECT_TRUE(router) << router.error().message;
    gateway_.SetUpstream(*router);
    auto server = net::HttpServer::Start({}, [this](net::HttpRequest request, auto writer) {
      gateway_.Handle(std::move(request), std::move(writer));
    });
    EXPECT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }

  Reading Ask(bool chat) {
    net::ClientRequest request;
    request.method = "POST";
    request.url = *net::ParseUrl(
        fmt::format("http://127.0.0.1:{}/v1/{}completions", server_->port(), chat ? "chat/" : ""));
    json body = {{"model", "m"}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
    if (chat) {
      body["messages"] = {{{"role", "user"}, {"content", "q"}}};
    } else {
      body["prompt"] = ">";
      body["max_tokens"] = 1000;
    }
    request.body = body.dump();
    const auto answer = net::FetchBlocking(std::move(request));
    EXPECT_TRUE(answer) << answer.error().message;
    if (!answer) return {};
    if (answer->head.status == 200) return Read(answer->body);
    Reading refused;  // before anything was sent, so that the status tells
    refused.failed = answer->head.status >= 500;
    return refused;
  }
  // So far.
  Charge Charged() const {
    const auto rows = ledger_->Usage();
    return rows.empty() ? Charge{} : Charge(rows[0].requests, rows[0].output_tokens);
  }

 private:
  GatewayOptions Options() const {
    GatewayOptions options;
    options.ledger = ledger_;
    return options;
  }

  FakeServer first_, second_;
  const std::shared_ptr<QuotaLedger> ledger_;
  Gateway gateway_;
  std::unique_ptr<net::HttpServer> server_;
};

bool Whole(const Reading& reading, const Author& author) {
  return reading.text == author.whole() && reading.finished && reading.done && !reading.failed;
}

const std::vector<std::string> kPieces = {"A", " \"b\"", "\n\n", "c", " é", "."};

class CutStreamTest : public ::testing::TestWithParam<std::tuple<Framing, bool>> {};
INSTANTIATE_TEST_SUITE_P(Framings, CutStreamTest,
                         ::testing::Combine(::testing::Values(Framing::kChunked,
                                                              Framing::kUntilClose),
                                            ::testing::Bool()));

TEST_P(CutStreamTest, GoesOnElsewhereFromEveryByte) {
  const auto [framing, chat] = GetParam();
  Author author(kPieces, framing);
  const std::string message = author.Message("", chat);
  std::unique_ptr<Desk> desk;
  int asked = 0, continued = 0;
  for (std::size_t cut = 0; cut <= message.size(); ++cut) {
    if (cut % kCutsOfBudget == 0) {
      desk = std::make_unique<Desk>(&author, /*continues=*/true);
      asked = 0;
    }
    author.Cut({cut});
    const Reading reading = desk->Ask(chat);
    ASSERT_TRUE(Whole(reading, author)) << "cut after " << message.substr(0, cut) << "\ngot "
                                        << reading.text << (reading.failed ? ", error" : "");
    ASSERT_TRUE(reading.seamless) << cut;
    ASSERT_TRUE(reading.usage);
    ASSERT_EQ(reading.usage->completion_tokens, author.tokens()) << cut;
    const bool told = reading.usage->prompt_tokens != 0;  // not when cut between finish and usage
    if (told) {
      ASSERT_EQ(reading.usage->prompt_tokens, kPrompt) << cut;
    }
    continued += author.asked() == 2 ? 1 : 0;
    ++asked;
    ASSERT_EQ(desk->Charged(), Charge(asked, asked * author.tokens())) << cut;
  }
  EXPECT_GT(continued, 200);
}

TEST_P(CutStreamTest, IsAnErrorWhereNothingGoesOn) {
  const auto [framing, chat] = GetParam();
  Author author(kPieces, framing);
  Desk desk(&author, /*continues=*/chat, /*able=*/false);
  const std::string message = author.Message("", chat);
  int interrupted = 0, whole = 0;
  for (std::size_t cut = 0; cut <= message.size(); ++cut) {
    author.Cut({cut});
    const Reading reading = desk.Ask(chat);
    ASSERT_TRUE(reading.seamless) << cut;
    if (reading.failed) {
      ++interrupted;
      ASSERT_FALSE(reading.done || reading.finished || reading.usage) << cut;
      ASSERT_TRUE(author.whole().starts_with(reading.text)) << cut;
    } else {
      ++whole;
      ASSERT_TRUE(Whole(reading, author)) << cut;
    }
  }
  EXPECT_GT(interrupted, 200);
  EXPECT_EQ(desk.Charged(), Charge(whole, whole * author.tokens()))
      << "an answer that ends in an error costs nothing";
  if (!chat) return;
  // Nor does it cost what others are continued with: a completion goes on at any server.
  for (int i = 0; i < 20; ++i) {
    author.Cut({author.Message("", false).find("\\n\\n")});
    ASSERT_TRUE(Whole(desk.Ask(/*chat=*/false), author)) << i;
    ASSERT_EQ(author.asked(), 2);
  }
}

RC_GTEST_PROP(CutStream, AnyTextCutTwiceIsWholeOrAnError, ()) {
  const auto word = rc::gen::elementOf(std::vector<std::string>{
      "a", " b", "c ", " ", "\n", " \n\t", "\"", "\\", "é", " 世", "data: [DONE]", "\r\n"});
  const auto pieces =
      *rc::gen::resize(12, rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(word)));
  const bool chat = *rc::gen::arbitrary<bool>();
  Author author(pieces, *rc::gen::element(Framing::kChunked, Framing::kUntilClose));
  Desk desk(&author, /*continues=*/true);
  const std::size_t length = author.Message("", chat).size();
  author.Cut(
      {*rc::gen::inRange<std::size_t>(0, length), *rc::gen::inRange<std::size_t>(0, length)});
  const Reading reading = desk.Ask(chat);
  RC_ASSERT(reading.seamless);
  RC_ASSERT(reading.failed || Whole(reading, author));
  RC_ASSERT(!reading.failed || !(reading.done || reading.finished));
}

}  // namespace
}  // namespace tare::gateway
