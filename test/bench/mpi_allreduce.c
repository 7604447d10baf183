/* The uncompressed all-reduce to compare with: MPI_Allreduce of floats, timed as cgx perf does (mean of the iterations, slowest rank).
 * Usage: mpi_allreduce <iterations> <bytes>...   Rank 0 prints "<bytes> <microseconds>" a line. Knows nothing of cgx. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int iterations = argc > 1 ? atoi(argv[1]) : 5;
  for (int a = 2; a < argc; ++a) {
    const size_t bytes = strtoull(argv[a], NULL, 10);
    const size_t count = bytes / sizeof(float);
    float* send = malloc(bytes);
    float* recv = malloc(bytes);
    if (send == NULL || recv == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < count; ++i) send[i] = (float)(i % 1000) * 0.001f + (float)rank;
    MPI_Allreduce(send, recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < iterations; ++i) MPI_Allreduce(send, recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double mine = (MPI_Wtime() - start) / iterations;
    double slowest;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%zu %.1f\n", bytes, slowest * 1e6);
    free(send);
    free(recv);
  }
  MPI_Finalize();
  return 0;
}
