#include "base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <memory>

#include "base/check.h"

namespace tare {

Sha256Digest Sha256(std::span<const std::byte> bytes) {
  // Looking the algorithm up and making a context each take longer than hashing a key does.
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  thread_local const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  Sha256Digest digest;
  TARE_CHECK(algorithm != nullptr && EVP_DigestInit_ex(context.get(), algorithm, nullptr) == 1 &&
             EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) == 1 &&
             EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) == 1);
  return digest;
}

Sha256Digest Sha256(std::string_view text) { return Sha256(std::as_bytes(std::span(text))); }

std::string ToHex(const Sha256Digest& digest) {
  std::string hex;
  for (const std::uint8_t byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

struct Sha256Stream::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256Stream::Sha256Stream() : context_(std::make_unique<Context>()) {
  TARE_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}
Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::Add(std::string_view bytes) {
  TARE_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1);
}

Sha256Digest Sha256Stream::Finish() {
  Sha256Digest digest;
  TARE_CHECK(EVP_DigestFinal_ex(context_->evp, digest.data(), nullptr) == 1);
  return digest;
}

}  // namespace tare
