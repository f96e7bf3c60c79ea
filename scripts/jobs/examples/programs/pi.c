/* Computes pi with MPI: each process adds up its part of a sum, and one collective adds the parts.
 *
 *     mpicc -O2 -o pi pi.c -lm && srun --mpi=pmix --ntasks=8 ./pi
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    long steps = argc > 1 ? atol(argv[1]) : 100000000;
    int rank, size, length;
    double width = 1.0 / steps, part = 0, pi = 0;
    char name[MPI_MAX_PROCESSOR_NAME];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(name, &length);
    printf("process %d of %d on %s\n", rank, size, name);
    for (long i = rank; i < steps; i += size) {
        double x = (i + 0.5) * width;
        part += 4 / (1 + x * x);
    }
    part *= width;
    MPI_Allreduce(&part, &pi, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("pi is %.12f, wrong by %.1e\n", pi, fabs(pi - M_PI));
    if (fabs(pi - M_PI) > 1e-6)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
