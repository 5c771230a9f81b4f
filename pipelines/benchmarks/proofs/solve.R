# Solve one problem by leaps or lmSubsets: Rscript solve.R PACKAGE X Y m n k lam ANSWER, with X and Y as files of doubles.
arguments <- commandArgs(trailingOnly = TRUE)
m <- as.integer(arguments[4]); n <- as.integer(arguments[5]); k <- as.integer(arguments[6])
lam <- as.numeric(arguments[7])
X <- matrix(readBin(arguments[2], "double", m * n), m, n)
y <- readBin(arguments[3], "double", m)
suppressMessages(library(arguments[1], character.only = TRUE))
start <- sum(proc.time()[c("user.self", "sys.self")])
if (lam > 0) {
  X <- rbind(X, sqrt(lam) * diag(n)); y <- c(y, rep(0, n))
}
if (arguments[1] == "leaps") {
  found <- regsubsets(X, y, nvmax = k, intercept = FALSE, really.big = TRUE)
  chosen <- which(summary(found)$which[k, ])
} else {
  colnames(X) <- paste0("x", seq_len(n))
  found <- lmSubsets(X, y, intercept = FALSE, nmin = k, nmax = k)
  chosen <- match(variable.names(found, size = k), colnames(X))
}
seconds <- sum(proc.time()[c("user.self", "sys.self")]) - start
indices <- paste(unname(chosen) - 1, collapse = ", ")
writeLines(sprintf('{"indices": [%s], "bound": null, "proved": true, "seconds": %.6f, "preparation": 0}', indices, seconds), arguments[8])
