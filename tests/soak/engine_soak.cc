// Hours of mixed random traffic against the engine, to run under the sanitizers (./run soak):
//   engine_soak [--seconds N] [--clients N] [--first N]
//
// First clients go away in mid-answer, one after the other. Then worlds follow one another until
// the time is over (soak_world.h): in each, threads ask, leave, exchange adapters and embed while
// steps fail now and then. Every request must end exactly once, no page and no adapter may stay in
// use, and with integer weights the same request must have the same answer, bit for bit, each time.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/log.h"
#include "soak_traffic.h"

namespace tare::engine::soak {
namespace {

void Print(const Tally& tally) {
  const auto count = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf(
      "  %llu requests ended: %llu cancelled, %llu failed; %llu refused; %llu answers came again "
      "as before\n  %llu preemptions, %llu prefix tokens, %llu drafts right, %llu pages recycled, "
      "%llu moved; %llu changes of adapters, %llu embedding requests\n",
      count(tally.answers), count(tally.cancelled), count(tally.failed), count(tally.refused),
      count(tally.repeated), count(tally.preemptions), count(tally.prefix_hits),
      count(tally.accepted_drafts), count(tally.pages_recycled), count(tally.pages_moved),
      count(tally.adapters), count(tally.vectors));
  std::fflush(stdout);
}

}  // namespace
}  // namespace tare::engine::soak

int main(int argc, char** argv) {
  using namespace tare::engine::soak;
  int seconds = 10, clients = 10000;
  std::uint64_t first = 1;
  CLI::App app{"Mixed random traffic against the engine, to run under sanitizers"};
  app.add_option("--seconds", seconds, "of mixed traffic")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--clients", clients, "that go away in mid-answer before")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--first", first, "number of the first world, to play one again")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  // Failing steps and exchanged adapters are what this is about.
  tare::InitLogging(tare::LogLevel::kError);
  spdlog::set_level(spdlog::level::off);

  std::printf("%d clients gone in mid-answer\n", clients);
  Print(KillClients(clients));
  const tare::SteadyClock clock;
  const tare::Nanos end = clock.Now() + std::chrono::seconds(seconds);
  // A world for ten seconds, and at least a few worlds in all.
  const tare::Nanos each =
      std::min<tare::Nanos>(std::chrono::seconds(10), std::chrono::milliseconds(seconds * 125));
  Maker maker;
  Tally all;
  std::uint64_t number = first;
  for (; clock.Now() < end; ++number) {
    World world = maker.Make(number);
    std::printf("world %llu: %s\n", static_cast<unsigned long long>(number), world.name.c_str());
    std::fflush(stdout);
    const Tally tally = Play(std::move(world), number, each);
    Print(tally);
    all.Add(tally);
  }
  std::printf("all %llu worlds\n", static_cast<unsigned long long>(number - first));
  Print(all);
  std::printf("clean\n");
  return 0;
}
